"""The form of a person's attributes: a field for each that the visitor may change."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from flask_babel import gettext
from wtforms import Field, StringField, TextAreaField

from sso.flow import attributes
from sso.flow.attributes import REQUIRED, Definition
from sso.i18n import N_
from sso.models import Attribute
from sso.web.forms import PageForm

_PREFIX = "attribute_"
_NONE = ("", "-")
_MOST = 30_000  # characters of a field; a list with its line breaks fits


class ValuesForm(PageForm):
    """The fields `attribute_NAME`. Their values are texts, as `flow.attributes` writes them.

    `definitions`: the attributes that the visitor may change. `before`: the person's values.
    """

    definitions: Sequence[Definition] = ()
    before: Mapping[str, str] = {}

    @classmethod
    def of(cls, definitions: Sequence[Definition], values: Mapping[str, Any]) -> Self:
        """Make a form with a field for each definition, filled in unless it was submitted."""
        fields = {
            f"{_PREFIX}{entry.name}": (
                TextAreaField() if entry.type == attributes.LIST else StringField()
            )
            for entry in definitions
        }
        before = texts_of(definitions, values)
        more = {"definitions": definitions, "before": before}
        form: Self = type(cls.__name__, (cls,), {**fields, **more})()
        if not form.is_submitted():
            form.fill(before)
        return form

    def inputs(self) -> Iterable[tuple[Field, Definition]]:
        """Return each field with its definition."""
        return [(self[f"{_PREFIX}{entry.name}"], entry) for entry in self.definitions]

    def fill(self, values: Mapping[str, Any]) -> None:
        for field, entry in self.inputs():
            field.data = values.get(entry.name, "")

    def read(self) -> dict[str, Any]:
        """Return the texts of all fields by the name of the attribute."""
        return {
            entry.name: (field.data or "").replace("\r\n", "\n").strip()
            for field, entry in self.inputs()
        }

    def is_required(self, definition: Definition) -> bool:
        """Return whether the field has to be filled in."""
        return False

    def title_of(self, name: str) -> str:
        titles = {entry.name: entry.title for entry in self.definitions}
        return titles.get(name) or name

    def options_of(self, field: Field, definition: Definition) -> list[tuple[str, str]]:
        """Return the values of a field to choose from, with their titles; none of other types.

        A value that can no longer be chosen may stay.
        """
        if definition.type == attributes.BOOLEAN:
            return [_NONE, ("true", gettext("yes")), ("false", gettext("no"))]
        if definition.type != attributes.CHOICE:
            return []
        texts = dict.fromkeys([*definition.choices, *filter(None, [field.data])])
        return [_NONE, *((text, text) for text in texts)]

    def validate(self, extra_validators: Any = None) -> bool:
        """Check that all values fit their attributes; those that are there already may stay."""
        is_valid = super().validate(extra_validators)
        texts = self.read()
        for field, entry in self.inputs():
            text = texts[entry.name]
            value = typed(entry, text) if len(text) <= _MOST else text
            if value is None or text == self.before.get(entry.name):
                continue
            if error := attributes.value_error(entry, value):
                field.errors, is_valid = [error], False
        return is_valid


class SignUpValuesForm(ValuesForm):
    """The attributes that a sign-up or an invitation asks for. `required`: their names."""

    required: Collection[str] = ()

    @classmethod
    def asked(cls, definitions: Sequence[Attribute]) -> Self:
        """Make the form for these definitions."""
        form = cls.of(definitions, {})
        form.required = {entry.name for entry in definitions if entry.at_sign_up == REQUIRED}
        return form

    def is_required(self, definition: Definition) -> bool:
        return definition.name in self.required

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = super().validate(extra_validators)
        texts = self.read()
        for field, entry in self.inputs():
            if entry.name in self.required and typed(entry, texts[entry.name]) is None:
                field.errors, is_valid = [N_("Fill this in.")], False
        return is_valid

    def values(self) -> dict[str, Any]:
        """Return the values that were given, by the names of their attributes."""
        texts = self.read()
        values = {entry.name: typed(entry, texts[entry.name]) for entry in self.definitions}
        return {name: value for name, value in values.items() if value is not None}


class OwnValuesForm(ValuesForm):
    """The attributes that a person may change, on the account page.

    `readable`: title and text of those that the person may read. `was_sent`: it is this form of the
    page that was submitted. `problems`: why the service refused it.
    """

    readable: Sequence[tuple[str, str]] = ()
    was_sent = False
    problems: Sequence[str] = ()


def texts_of(definitions: Iterable[Definition], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of these attributes as texts of the form."""
    return {entry.name: attributes.text_of(values.get(entry.name), "\n") for entry in definitions}


def displayed(value: Any) -> str:
    """Return a value as pages show it."""
    if isinstance(value, bool):
        return str(gettext("yes") if value else gettext("no"))
    return attributes.text_of(value)


def typed(definition: Definition, text: str) -> Any:
    """Return the value that a text of the form stands for; `None` if it is empty."""
    return attributes.parsed(definition.type, text, "\n")
