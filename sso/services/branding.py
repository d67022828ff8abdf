"""The branding that is stored: name, logo, accent color and links of the service."""

from collections.abc import Mapping
from typing import Any

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import branding
from sso.config.branding import FIELDS
from sso.config.images import NO_IMAGE, Image
from sso.i18n.message import Message
from sso.models import StoredBranding
from sso.services import changes as differences
from sso.services.changes import Differences
from sso.services.checks import Invalid
from sso.store import branding as stored


def described(row: StoredBranding | None) -> dict[str, Any]:
    """Return the fields, as the audit trail compares them; the logo as its digest."""
    fields = row.fields if row else {}
    values = {name: fields.get(name) for name in FIELDS}
    return {**values, "logo": row.logo_digest if row else None}


@audit.acting
def change(
    actor: Actor, fields: Mapping[str, Any], *, expected: Mapping[str, Any] | None = None
) -> Differences:
    """Store fields; `None`, "" and `NO_IMAGE` remove one. Pages change within seconds.

    `expected`: fields of `described`, as they were shown to the operator. Raises `Invalid`,
    `NotAllowed` and `Changed`.
    """
    row = stored.lock()
    before = described(row)
    differences.require_unchanged(expected, before)
    values = _checked(fields)
    logo = values.pop("logo", None)
    texts = {name: value for name, value in row.fields.items() if name in FIELDS} | values
    after = {**before, **values}
    if logo is not None:
        after["logo"] = logo.digest if logo.data else None
    changes = differences.between(before, after)
    if changes:
        stored.write(row, {name: text for name, text in texts.items() if text}, logo)
        audit.event(
            Event.BRANDING_CHANGED, by=actor.by, what=" ".join(changes), changes=changes
        )  # fmt: skip
    return changes


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to store, with `None` for those to remove. Raises `Invalid`."""
    from_environment = branding.in_environment(context.settings())
    values: dict[str, Any] = {}
    errors = []
    for name, value in fields.items():
        if name == "logo":
            logo: Image = NO_IMAGE if value is None else value
            is_empty, values[name] = not logo.data, logo
        else:
            is_empty, values[name] = not value, None
        if is_empty:
            continue
        if name in from_environment:
            errors.append(_set_elsewhere(name))
        elif name != "logo":
            try:
                values[name] = branding.checked(name, value)
            except ValueError as error:
                errors.append(refused(name, error.args[0]))
    if errors:
        raise Invalid(errors)
    return values


def _set_elsewhere(name: str) -> Message:
    return Message(
        "%(field)s: %(setting)s sets it in the environment of the server, which comes first",
        field=FIELDS[name].term,
        setting=branding.setting_of(name),
    )


def refused(name: str, reason: str) -> Message:
    """Return the message that the value of a field is refused, with the reason."""
    return Message("%(field)s: %(reason)s", field=FIELDS[name].term, reason=reason)
