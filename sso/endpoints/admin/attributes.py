"""Pages of the attributes of people: list, define, change and delete them, and set values."""

from collections.abc import Mapping
from typing import Any

from flask import abort, request
from werkzeug.wrappers import Response
from wtforms import Field, TextAreaField

from sso.audit import Actor
from sso.config.attribute_fields import FIELDS, FIXED
from sso.config.fields import Field as TableField
from sso.config.fields import Input, Kind
from sso.endpoints.admin import access, admin_page
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import EditForm, input_of, lines
from sso.endpoints.admin.people import PERSON
from sso.endpoints.attribute_form import ValuesForm, texts_of, typed
from sso.flow.attributes import CHOICE, TYPES, WRITERS
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import Attribute, User
from sso.services import attributes, roles
from sso.services.changes import Differences
from sso.store import attributes as stored


class AttributeForm(EditForm):
    """The definition of an attribute, with the fields that `attribute_fields` has."""

    def __init__(self, attribute: Attribute | None = None) -> None:
        """Make the form of a definition, whose name and type stay, or of a new one."""
        super().__init__()
        if attribute is not None:
            for name in FIXED:
                del self[name]
            if attribute.type != CHOICE:
                del self.choices
        elif not self.is_submitted():
            self.fill({field.name: field.default for field, _ in _FIELDS})

    def inputs(self) -> list[tuple[Field, TableField, Input]]:
        """Return the fields as the form has them and as the table has them, with their input."""
        return [(self[field.name], field, about) for field, about in _FIELDS if field.name in self]

    def fill(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name in self:
                is_lines = isinstance(value, list) and isinstance(self[name], TextAreaField)
                self[name].data = "\n".join(value) if is_lines else value

    def read(self) -> dict[str, Any]:
        return {
            field.name: _value_of(field, self[field.name].data)
            for field, _ in _FIELDS
            if field.name in self
        }


def _value_of(field: TableField, data: Any) -> Any:
    if field.json_type is not list:
        return (data or "").strip()
    return list(data or ()) if field.kind is Kind.CHOICES else lines(data)


_FIELDS = [(field, field.form) for field in FIELDS.values() if field.form]
for _field, _about in _FIELDS:
    setattr(AttributeForm, _field.name, input_of(_field, _about))


class PersonValuesForm(ValuesForm, EditForm):
    """The attributes of a person."""


def _attribute() -> Attribute:
    """Return the attribute that the URL names; 404 if there is none."""
    name = request.args.get("name", "")
    is_clean = name.isascii() and name.isprintable()
    return (stored.find(name) if is_clean else None) or abort(404)


def _values_go(attribute: Attribute) -> list[Message]:
    count = stored.count_values(attribute.name)
    return [Message("Values that are deleted: %(count)d", count=count)] if count else []


ATTRIBUTE = Resource(
    section="attributes",
    page="attribute",
    query=lambda attribute: {"name": attribute.name},
    find=_attribute,
    name="attribute",
    title=lambda attribute: attribute.name,
    variables=lambda attribute: {"name": attribute.title or attribute.name},
    actions={
        "delete": Action(
            label=N_("Delete the attribute"),
            question=N_(
                "%(name)s is deleted with the values of all people. This cannot be undone."
            ),
            done=N_("The attribute was deleted."),
            run=lambda actor, attribute: attributes.delete(actor, attribute.name),
            warnings=_values_go,
            is_danger=True,
            is_removal=True,
        )
    },
    results={
        "created": N_("The attribute was defined."),
        "edited": N_("The changes were saved."),
    },
)


def defined() -> Response:
    """List all attributes by name."""
    rows, pages, total = admin_page.numbered(stored.every())
    return ATTRIBUTE.render(
        "admin/attributes.html",
        attributes=rows,
        pages=pages,
        total=total,
        types=TYPES,
        parties=WRITERS,
    )


def new() -> Response:
    """Define an attribute."""
    form = AttributeForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            attributes.define(access.staff().actor, form.read())
            return ATTRIBUTE.done("created")
    return admin_page.form_page("admin/attribute.html", "attributes", form, refusal, attribute=None)


def attribute() -> Response:
    """Show a definition, and change it."""
    row = _attribute()
    return ATTRIBUTE.edit(
        "admin/attribute.html",
        form_of=AttributeForm,
        described=_described,
        save=_save,
        done=ATTRIBUTE.done_texts,
        buttons=ATTRIBUTE.buttons(row, "attribute_delete"),
        type_title=TYPES.get(row.type, row.type),
    )


def _described(row: Attribute) -> dict[str, Any]:
    apart = FIXED if row.type == CHOICE else (*FIXED, "choices")
    return {name: value for name, value in attributes.described(row).items() if name not in apart}


def _save(actor: Actor, row: Attribute, changes: Differences, expected: dict[str, Any]) -> None:
    fields = {name: change["after"] for name, change in changes.items()}
    attributes.change(actor, row.name, fields, expected=expected)


def delete() -> Response:
    """Ask, then delete a definition with all values."""
    return ATTRIBUTE.act("delete")


def of_person() -> Response:
    """Change the attributes of a person that the visitor may change."""
    actor = access.staff().actor
    party = attributes.party_of(actor, admin_page.person().groups)
    definitions = attributes.writable(party, attributes.definitions())
    by_name = {entry.name: entry for entry in definitions}

    def form_of(user: User) -> PersonValuesForm:
        roles.require_no_more(actor, user)
        return PersonValuesForm.of(definitions, user.attributes)

    def save(actor: Actor, user: User, changes: Differences, _expected: dict[str, Any]) -> None:
        before, after = (
            {name: typed(by_name[name], change[when]) for name, change in changes.items()}
            for when in ("before", "after")
        )
        attributes.set_values(actor, user.id, after, expected=before)

    return PERSON.edit(
        "admin/person_attributes.html",
        form_of=form_of,
        described=lambda user: texts_of(definitions, user.attributes),
        save=save,
    )
