"""The forms of admin pages. Each carries a CSRF token."""

import json
from collections.abc import Mapping
from typing import Any

from flask_babel import lazy_gettext
from wtforms import (
    BooleanField,
    EmailField,
    Field,
    HiddenField,
    SelectField,
    SelectMultipleField,
    StringField,
    TextAreaField,
)
from wtforms.fields import SelectChoice  # type: ignore[attr-defined]  # its stubs lack it
from wtforms.validators import DataRequired, Length, ValidationError

from sso.config import email_addresses
from sso.endpoints.forms import TOO_LONG
from sso.flow.scopes import CLAIM_NAMES
from sso.i18n import N_
from sso.services import api_tokens, checks
from sso.web.page_form import PageForm

MOST_GROUPS = 10_000  # characters
_JSON = ("address",)
_SWITCHES = ("phone_number_verified",)


_LIFETIMES = {
    "7": N_("7 days"),
    "30": N_("30 days"),
    "90": N_("90 days"),
    "365": N_("1 year"),
    "730": N_("2 years"),
}


def choices(titles: Mapping[str, str]) -> list[SelectChoice]:
    """What a list offers: values with their titles."""
    return [SelectChoice(value, title) for value, title in titles.items()]


class ConfirmForm(PageForm):
    """One button; what it does is in the URL. `seen`: the version that the page showed."""

    seen = HiddenField()


def _check_email(_: PageForm, field: Field) -> None:
    try:
        field.data = email_addresses.normalized(field.data or "")
    except ValueError:
        raise ValidationError(N_("This is not an email address.")) from None


def _check_name(_: PageForm, field: Field) -> None:
    field.data = (field.data or "").strip()
    if checks.text_error(checks.NAME, field.data):
        raise ValidationError(N_("Enter a name on one line."))


def _check_groups(_: PageForm, field: Field) -> None:
    if any(checks.group_errors([name], ()) for name in lines(field.data)):
        raise ValidationError(N_("Enter one group per line, without commas."))


def lines(text: str | None) -> list[str]:
    """The lines that are not empty, each once."""
    return list(dict.fromkeys(filter(None, (one.strip() for one in (text or "").splitlines()))))


class InviteForm(PageForm):
    """A new person, who sets the password."""

    email = EmailField(
        lazy_gettext("Email"),
        [
            DataRequired(N_("Enter an email address.")),
            Length(max=email_addresses.LONGEST, message=TOO_LONG),
            _check_email,
        ],
    )
    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(N_("Enter a name on one line.")), Length(max=200, message=TOO_LONG),
         _check_name],
    )  # fmt: skip
    groups = TextAreaField(
        lazy_gettext("Groups, one per line"),
        [Length(max=MOST_GROUPS, message=TOO_LONG), _check_groups],
    )


class PersonForm(InviteForm):
    """A person as one sees them; `seen` is what the fields were when the page was made."""

    email_verified = BooleanField(lazy_gettext("The address belongs to this person"))
    seen = HiddenField()

    def show(self, described: Mapping[str, Any], seen: Mapping[str, Any] | None = None) -> None:
        """Fill the fields, and remember what they are, or what else was `seen`."""
        self.email.data, self.name.data = described["email"], described["name"]
        self.email_verified.data = described["email_verified"]
        self.groups.data = "\n".join(described["groups"])
        for claim in CLAIM_NAMES:
            value = described["claims"].get(claim)
            self[f"claim_{claim}"].data = _shown(claim, value)
        self.seen.data = json.dumps(seen_of(seen or described))

    def read(self) -> dict[str, Any]:
        """What the fields say, as `seen_of` has it."""
        claims = {claim: _read(claim, self[f"claim_{claim}"].data) for claim in CLAIM_NAMES}
        return {
            "email": self.email.data,
            "name": self.name.data,
            "email_verified": bool(self.email_verified.data),
            "groups": lines(self.groups.data),
            "claims": {claim: value for claim, value in claims.items() if value is not None},
        }

    def was_seen(self) -> dict[str, Any] | None:
        """What the fields were; `None` if that is not readable."""
        try:
            found = json.loads(self.seen.data or "")
            is_whole = found.keys() == set(_SEEN) and isinstance(found["claims"], dict)
        except (ValueError, RecursionError, AttributeError):
            return None
        return found if is_whole else None


for _claim, _label in CLAIM_NAMES.items():
    _kind = (
        BooleanField if _claim in _SWITCHES else TextAreaField if _claim in _JSON else StringField
    )
    _checks = [] if _claim in _SWITCHES else [Length(max=checks.MAX_CLAIM, message=TOO_LONG)]
    setattr(PersonForm, f"claim_{_claim}", _kind(lazy_gettext(_label), _checks))


class GroupForm(PageForm):
    """The name of a group; `seen` is what it was when the page was made."""

    seen = HiddenField()

    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(N_("Enter a name on one line.")), _check_groups],
    )


class ApiTokenForm(PageForm):
    """A new API token."""

    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(N_("Enter a name on one line.")), Length(max=200, message=TOO_LONG),
         _check_name],
    )  # fmt: skip
    scopes = SelectMultipleField(
        lazy_gettext("What it may do"),
        [DataRequired(N_("Choose at least one."))],
        choices=choices(api_tokens.SCOPES),
    )
    days = SelectField(lazy_gettext("It expires after"), choices=choices(_LIFETIMES), default="365")


class MemberForm(PageForm):
    """The email address of a new member."""

    email = EmailField(
        lazy_gettext("Email"), [DataRequired(N_("Enter an email address.")), _check_email]
    )


_SEEN = ("email", "name", "email_verified", "groups", "claims")


def seen_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a person that the form has."""
    return {name: described[name] for name in _SEEN}


def _shown(claim: str, value: Any) -> Any:
    if claim in _SWITCHES:
        return value is True
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value or ""


def _read(claim: str, data: Any) -> Any:
    """A claim's value, `None` for none; what is no JSON is refused later, by `checks`."""
    if claim in _SWITCHES:
        return True if data else None
    text = (data or "").replace("\r\n", "\n").strip()
    if claim in _JSON and text:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text or None
