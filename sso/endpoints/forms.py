"""The forms of the pages: all that a person submits."""

from typing import Any

from flask import request
from flask_babel import lazy_gettext
from flask_wtf import FlaskForm
from wtforms import BooleanField, EmailField, PasswordField, StringField
from wtforms.validators import DataRequired, Length

from sso.crypto.passwords import MAX_LENGTH
from sso.flow.scopes import SCOPES
from sso.i18n import N_
from sso.ratelimit import refusals

TOO_LONG = N_("This is too long.")


class PageForm(FlaskForm):
    """A form that comes form-encoded; FlaskForm would take JSON, too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(request.form if request.method == "POST" else None, **options)


class DecisionForm(PageForm):
    """Buttons that say yes or no: each has its `value`."""

    decision = StringField()


class SignOutForm(DecisionForm):
    """The question whether to sign out.

    The route of end-session checks no CSRF token: this form alone does, and notes a missing one.
    """

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = bool(super().validate(extra_validators))
        if not is_valid:
            refusals.note_csrf("".join(self.errors.get("csrf_token", ())[:1]))
        return is_valid


class ConsentForm(DecisionForm):
    """Allow or deny; each scope has a box `scope_NAME`.

    `offered`: the scopes that were on the page, or `None` if it had no boxes.
    """

    offered = StringField()

    def unticked(self, offered: frozenset[str]) -> frozenset[str]:
        """Those of the offered scopes whose boxes came back empty; none without boxes."""
        if self.offered.data is None:
            return frozenset()
        ticked = {name for name in SCOPES if self[f"scope_{name}"].data}
        return offered - ticked


for _scope in SCOPES:
    setattr(ConsentForm, f"scope_{_scope}", BooleanField())


class PasskeyForm(PageForm):
    """What `passkeys.js` sends: the credential, for the challenge that the page had."""

    credential = StringField(default="")
    challenge = StringField(default="")
    remember = BooleanField()


class SecondFactorForm(PasskeyForm):
    """A code, a recovery code or a passkey; or the button to cancel."""

    decision = StringField()
    code = StringField(default="")
    recovery_code = StringField(default="")


class FactorsForm(PasskeyForm):
    """What to do with the factors. `name`: of a new passkey; `passkey`: the id of one."""

    action = StringField(default="")
    name = StringField(default="")
    passkey = StringField(default="")


class TotpForm(PageForm):
    """A code of the app, for the secret in `setup`."""

    setup = StringField(default="")
    code = StringField(default="")


class EmailedCodeForm(PageForm):
    """A code from a mail, or the wish for one."""

    action = StringField(default="")
    code = StringField(default="")


class AccountForm(PageForm):
    """What to do, and with which session, client or language."""

    action = StringField(default="")
    session = StringField(default="")
    client = StringField(default="")
    locale = StringField(default="")


class SignInForm(PageForm):
    """Email and password."""

    email = EmailField(
        lazy_gettext("Email"),
        [
            DataRequired(N_("Enter your email address.")),
            Length(max=320, message=TOO_LONG),
        ],
    )
    password = PasswordField(
        lazy_gettext("Password"),
        [
            DataRequired(N_("Enter your password.")),
            Length(max=MAX_LENGTH, message=TOO_LONG),
        ],
    )
    remember = BooleanField(lazy_gettext("Keep me signed in on this device"))


class ChangePasswordForm(PageForm):
    """The old password proves that it is still the same person."""

    old_password = PasswordField(
        lazy_gettext("Old password"),
        [
            DataRequired(N_("Enter your old password.")),
            Length(max=MAX_LENGTH, message=TOO_LONG),
        ],
    )
    new_password = PasswordField(
        lazy_gettext("New password"),
        [
            DataRequired(N_("Enter a new password.")),
            Length(max=MAX_LENGTH, message=TOO_LONG),
        ],
    )
