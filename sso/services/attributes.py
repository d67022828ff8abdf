"""Attributes of people: define, change and delete them, and change their values.

`flow.attributes` has the rules of definitions and values.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config.attribute_fields import FIELDS, FIXED
from sso.extensions import db
from sso.flow import attributes, own_claims
from sso.flow.attributes import Definition, Party
from sso.flow.permissions import Permission
from sso.i18n.message import Message
from sso.models import Attribute, Client, User
from sso.services import changes as differences
from sso.services import checks, roles, subjects
from sso.services.changes import Differences, ListEdit, Outcome
from sso.services.checks import Invalid, Rule
from sso.store import attributes as stored
from sso.store import clients, provisioning, users

logger = logging.getLogger("sso.upstream")

# The fields of a client that name attributes.
FIELDS_OF_CLIENT = ("own_claims", "scim_attributes", "subject_attribute")
_NOT_FOR_SUBJECTS = Message(
    "an attribute of subjects is a line of text that only administrators may change, and nobody is "
    "asked for"
)
_declared: ContextVar[Mapping[str, Definition] | None] = ContextVar("attributes", default=None)


def described(definition: Definition) -> dict[str, Any]:
    """Return the fields of a definition, as files have them and the audit trail compares them."""
    return {name: getattr(definition, name) for name in FIELDS}


@audit.acting
def define(actor: Actor, fields: Mapping[str, Any]) -> Attribute:
    """Define an attribute. Raises `Invalid` and `NotAllowed`."""
    attribute = plan_definition(fields)
    rows = stored.share()
    if any(row.name == attribute.name for row in rows):
        raise _taken(attribute.name)
    if len(rows) >= attributes.MOST:
        raise Invalid([Message("there are %(most)d attributes already", most=attributes.MOST)])
    name = attribute.name
    try:
        stored.add(attribute)
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        raise _taken(name) from None
    audit.event(Event.ATTRIBUTE_CREATED, by=actor.by, attribute=attribute.name)
    return attribute


def plan_definition(fields: Mapping[str, Any]) -> Attribute:
    """Return the definition that `define` would store. Raises `Invalid`."""
    attribute = Attribute(**{name: field.default for name, field in FIELDS.items()})
    _edit(attribute, fields)
    return attribute


@audit.acting
def change(
    actor: Actor,
    name: str,
    fields: Mapping[str, Any],
    *,
    lists: Mapping[str, ListEdit] | None = None,
    expected: Mapping[str, Any] | None = None,
) -> tuple[Attribute, Outcome]:
    """Change a definition; values that are there already stay.

    `expected`: fields of `described`, as they were shown to the operator. Raises `LookupError`,
    `Invalid`, `NotAllowed` and `Changed`.
    """
    attribute = stored.lock(name)
    if attribute is None:
        raise LookupError(name)
    before = described(attribute)
    differences.require_unchanged(expected, before)
    edits = {**fields}
    for field, edit in (lists or {}).items():
        edits[field] = edit.applied_to(before[field])
    changes = plan_change(attribute, edits)
    if changes and not _is_for_subjects(attribute) and _with_subjects(name):
        raise Invalid([_NOT_FOR_SUBJECTS])
    notes = [
        f"{field}: {note}"
        for field, edit in (lists or {}).items()
        for note in edit.without_effect(before[field])
    ]
    db.session.flush()
    if changes:
        audit.event(
            Event.ATTRIBUTE_CHANGED, by=actor.by, attribute=name, what=" ".join(changes),
            changes=changes,
        )  # fmt: skip
    return attribute, Outcome(changes, notes)


def plan_change(attribute: Attribute, fields: Mapping[str, Any]) -> Differences:
    """Change only the object; return the changes. Raises `Invalid`."""
    before = described(attribute)
    if changed := [name for name in FIXED if fields.get(name, before[name]) != before[name]]:
        raise Invalid(
            [
                Message(
                    "the %(field)s of an attribute stays; delete the attribute, which deletes its "
                    "values, and define it again",
                    field=changed[0],
                )
            ]
        )
    _edit(attribute, fields)
    return differences.between(before, described(attribute))


@audit.acting
def delete(actor: Actor, name: str) -> int:
    """Delete a definition with the values of all people; return how many people had one.

    Raises `LookupError`, `NotAllowed`, and `Invalid` if an application has a claim from it.
    """
    attribute = stored.lock(name)
    if attribute is None:
        raise LookupError(name)
    holders = [
        client.client_id
        for client in {*clients.with_own_claims(), *provisioning.clients()}
        if name in own_claims.attributes_in([*client.own_claims, *client.scim_attributes])
    ]
    holders += [client.client_id for client in _with_subjects(name)]
    if holders:
        raise Invalid(
            [
                Message(
                    "applications have claims from the attribute: %(clients)s",
                    clients=", ".join(sorted({*holders})[:10]),
                )
            ]
        )
    stored.remove(attribute)
    count = stored.remove_values(name)
    audit.event(Event.ATTRIBUTE_DELETED, by=actor.by, attribute=name, people=count)
    return count


def _with_subjects(name: str) -> list[Client]:
    rows = clients.with_subject_attribute()
    return [client for client in rows if client.subject_attribute == name]


def _edit(attribute: Attribute, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, str):
            tidy: Any = value.strip()
        else:
            tidy = list(dict.fromkeys(item.strip() for item in value))
        setattr(attribute, name, tidy)
    sign_up_error = attributes.sign_up_error(attribute.at_sign_up)
    errors = [*attributes.definition_errors(attribute), *([sign_up_error] if sign_up_error else ())]
    if errors:
        raise Invalid(errors)


def _taken(name: str) -> Invalid:
    return Invalid(
        [
            Message(
                "there is already an attribute with the name %(name)s",
                name=name,
                code=Rule.ALREADY_EXISTS,
            )
        ]
    )


@contextmanager
def declared(definitions: Mapping[str, Definition]) -> Iterator[None]:
    """Read the definitions once for many users, and accept those that a file declares.

    Within another such block, its definitions are accepted, too.
    """
    outer = _declared.get() or {}
    rows = {row.name: row for row in stored.every()}
    token = _declared.set({**rows, **outer, **definitions})
    try:
        yield
    finally:
        _declared.reset(token)


def definitions() -> Mapping[str, Definition]:
    """Return all definitions by name; see `declared`."""
    read_before = _declared.get()
    return {row.name: row for row in stored.every()} if read_before is None else read_before


def of_texts(texts: Mapping[str, str | list[str]]) -> dict[str, Any]:
    """Return the values that texts stand for, by the types of the attributes.

    A list stands for a list; for one of its texts if the attribute has another type.
    """
    by_name = definitions()
    values: dict[str, Any] = {}
    for name, text in texts.items():
        kind = by_name[name].type if name in by_name else ""
        if isinstance(text, str):
            values[name] = attributes.parsed(kind, text)
        elif kind == attributes.LIST or len(text) != 1:
            values[name] = attributes.tidy(text)
        else:
            values[name] = attributes.parsed(kind, text[0])
    return values


def party_of(actor: Actor, groups: Collection[str]) -> Party | None:
    """Return in which role an operator changes values of a person in these groups; `None` at the
    command line.
    """
    if actor.token or actor.service:
        return Party.SCIM
    if Permission.WRITE_PEOPLE not in actor.rights.over(groups):
        return Party.HELPDESK
    return Party.ADMINISTRATOR if actor.user_id else None


def writable(party: Party | None, by_name: Mapping[str, Definition]) -> list[Definition]:
    """Return the definitions whose values a party may change, by name."""
    return [entry for entry in by_name.values() if _may_write(entry, party)]


def _may_write(definition: Definition, party: Party | None) -> bool:
    """Return whether a party may change values of an attribute.

    Those that applications know people by are changed at the command line alone: somebody who
    manages a few people could become anybody else at the application.
    """
    if not attributes.may_write(definition, party):
        return False
    return party != Party.ADMINISTRATOR or not _with_subjects(definition.name)


def readable(
    user: User, party: Party, by_name: Mapping[str, Definition]
) -> list[tuple[Definition, Any]]:
    """Return each attribute of a user that a party may read, and its value."""
    return [
        (entry, user.attributes[entry.name])
        for entry in by_name.values()
        if entry.name in user.attributes and attributes.may_read(entry, party)
    ]


def origin_text(user: User, name: str) -> Message | None:
    """Return who set a value of a user; `None` without a value, and if nobody knows."""
    if name not in user.attributes:
        return None
    kind, _, provider_id = (user.attribute_origins or {}).get(name, "").partition(":")
    if kind not in attributes.ORIGINS:
        return None
    provider = context.upstreams().find(provider_id) if provider_id else None
    return Message(attributes.ORIGINS[kind], name=provider.name if provider else provider_id)


def merged(before: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """Return values after an edit; an empty value removes an attribute."""
    values = {**before, **{name: attributes.tidy(value) for name, value in edits.items()}}
    return {name: value for name, value in values.items() if value is not None}


def value_errors(
    before: Mapping[str, Any], after: Mapping[str, Any], party: Party | None
) -> list[str]:
    """Return why a party cannot change values like this. Values that are there already may stay."""
    if not (changed := attributes.changed(before, after)):
        return []
    by_name = definitions()
    errors: list[str] = []
    for name in changed:
        definition = by_name.get(name)
        if definition is None:
            if name in after:
                errors.append(Message("there is no attribute %(name)s", name=repr(str(name)[:100])))
        elif not _may_write(definition, party):
            errors.append(Message("the attribute %(name)s cannot be changed here", name=repr(name)))
        elif name in after and (error := attributes.value_error(definition, after[name])):
            errors.append(error)
    if not errors and _size(after) > attributes.MAX_VALUES:
        errors.append(
            Message(
                "the attributes of one person are longer than %(most)d bytes together",
                most=attributes.MAX_VALUES,
            )
        )
    return errors


def _size(values: Mapping[str, Any]) -> int:
    return len(json.dumps(values, ensure_ascii=False).encode())


def client_errors(
    entries: Sequence[str], before: Sequence[str], *, has_assertions: bool
) -> list[str]:
    """Return why a client cannot have these claims of its own; see `flow.own_claims`.

    `before`: the entries that it has already, whose attributes and groups may stay.
    `has_assertions`: it speaks SAML.
    """
    errors: list[str] = list(own_claims.errors(entries, has_assertions=has_assertions))
    errors += checks.group_errors(own_claims.groups_in(entries), own_claims.groups_in(before))
    return errors + unknown_in(entries, before)


def unknown_in(entries: Sequence[str], before: Sequence[str]) -> list[Message]:
    """Return an error for each attribute that entries name, those before do not, and nobody
    defined.
    """
    added = own_claims.attributes_in(entries) - own_claims.attributes_in(before)
    missing = sorted(added - definitions().keys()) if added else []
    return [Message("there is no attribute %(name)s", name=repr(name[:100])) for name in missing]


def subject_errors(metadata: Mapping[str, Any], before: Mapping[str, Any]) -> list[Message]:
    """Return why a client cannot have its attribute of subjects.

    The person who changes such a value becomes somebody else in the application. So nobody else
    than administrators may write it, and not even they while an application uses it. `before`: the
    client's metadata until now.
    """
    name = metadata.get("subject_attribute")
    if not name:
        return []
    if name == before.get("subject_attribute"):
        return []
    definition = definitions().get(name)
    if definition is None:
        return [Message("there is no attribute %(name)s", name=repr(name[:100]))]
    return subjects.client_errors(name) if _is_for_subjects(definition) else [_NOT_FOR_SUBJECTS]


def _is_for_subjects(definition: Definition) -> bool:
    is_asked = getattr(definition, "at_sign_up", attributes.NOT_ASKED) != attributes.NOT_ASKED
    writers = set(definition.writers) - {Party.ADMINISTRATOR}
    return definition.type == attributes.STRING and not writers and not is_asked


def hold(edits: Mapping[str, Any] | Sequence[str] | bool | None) -> None:
    """Keep all definitions as they are until the transaction ends, if there are edits that name
    attributes.

    Call it before users and clients are locked.
    """
    if edits:
        stored.share()


def of_provider(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Message]]:
    """Return what a sign-in provider says for attributes, as values, and why some are left out.

    `values`: by the names here, as the provider says them. `None` removes a value.
    """
    by_name, fit, errors = definitions(), dict[str, Any](), list[Message]()
    for name, stated in values.items():
        definition = by_name.get(name)
        if definition is None or not attributes.may_write(definition, Party.UPSTREAM):
            errors.append(
                Message("the attribute %(name)s is not defined with the writer upstream", name=name)
            )
            continue
        value = attributes.of_provider(definition.type, stated)
        error = None if value is None else attributes.value_error(definition, value)
        if error:
            errors.append(error)
        else:
            fit[name] = value
    return fit, errors


def edits_of_provider(user: User, provider_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what changes by what a sign-in provider says; the log says what is left out."""
    fit, errors = of_provider(values)
    edits = {
        name: value
        for name, value in fit.items()
        if not attributes.is_same(user.attributes.get(name), value)
    }
    if edits:
        after = merged(user.attributes, edits)
        if too_large := value_errors(user.attributes, after, Party.UPSTREAM):
            logger.warning("provider %s, user %s: %s", provider_id, user.id, "; ".join(too_large))
            edits = {}
    for error in errors:
        logger.warning("provider %s, user %s: %s", provider_id, user.id, error)
    return edits


def names_of(changes: Differences) -> audit.Uncut:
    """Return the names of the attributes that differ, for the audit trail: values are personal."""
    before, after = (changes["attributes"][when] or {} for when in ("before", "after"))
    return audit.Uncut(" ".join(attributes.changed(before, after)))


@audit.acting
def set_values(
    actor: Actor,
    user_id: UUID,
    edits: Mapping[str, Any],
    *,
    expected: Mapping[str, Any] | None = None,
) -> Differences:
    """Change values of a user, by an administrator or the helpdesk.

    `expected`: values as they were shown to the operator. Raises `LookupError`, `NotAllowed`,
    `Invalid` and `Changed`.
    """
    stored.share()
    user = users.lock_any(user_id)
    if user is None:
        raise LookupError(user_id)
    roles.require_may_help(actor, user)
    differences.require_unchanged(expected, {**dict.fromkeys(expected or ()), **user.attributes})
    changes = _set(user, edits, party_of(actor, user.groups))
    if changes:
        audit.event(
            Event.USER_CHANGED, by=actor.by, user=user.id, what="attributes",
            attributes=names_of(changes),
        )  # fmt: skip
    return changes


@audit.acting
def set_own(actor: Actor, user_id: UUID, edits: Mapping[str, Any]) -> Differences:
    """Change values by the user. Raises `LookupError` if the account is disabled, and `Invalid`."""
    stored.share()
    user = users.lock(user_id)
    if user is None:
        raise LookupError(user_id)
    changes = _set(user, edits, Party.PERSON)
    if changes:
        audit.own_event(Event.PROFILE_CHANGED, user.id, attributes=names_of(changes))
    return changes


def asked_at_sign_up(user: User | None) -> list[Attribute]:
    """Return the definitions that a sign-up or an invitation asks for, by name.

    `user`: who is invited; values that are there already are not asked for.
    """
    values = user.attributes if user else {}
    return [
        row
        for row in stored.every()
        if row.at_sign_up != attributes.NOT_ASKED and row.name not in values
    ]


@audit.acting
def set_at_sign_up(actor: Actor, user: User, edits: Mapping[str, Any]) -> None:
    """Set what a sign-up or an invitation asks for. Raises `Invalid`.

    The caller has called `hold`, and then created or locked the user.
    """
    asked = {row.name: row for row in asked_at_sign_up(user)}
    values = {name: value for name, value in edits.items() if attributes.tidy(value) is not None}
    errors = [
        Message("the attribute %(name)s cannot be changed here", name=repr(name[:100]))
        for name in values
        if name not in asked
    ]
    errors += [
        Message("the attribute %(name)s is missing", name=repr(name))
        for name, row in asked.items()
        if row.at_sign_up == attributes.REQUIRED and name not in values
    ]
    if errors:
        raise Invalid(errors)
    if changes := _set(user, values, None, Party.PERSON):
        audit.own_event(Event.PROFILE_CHANGED, user.id, attributes=names_of(changes))


def _set(
    user: User, edits: Mapping[str, Any], party: Party | None, origin: str | None = None
) -> Differences:
    after = merged(user.attributes, edits)
    if errors := value_errors(user.attributes, after, party):
        raise Invalid(errors)
    changes = differences.between({"attributes": user.attributes}, {"attributes": after})
    if changes:
        user.set_attributes(after, origin or party or attributes.OPERATOR)
        db.session.flush()
    return changes
