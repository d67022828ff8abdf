"""The forms of the pages."""

from typing import Any

from flask_babel import lazy_gettext
from flask_wtf import FlaskForm
from wtforms import BooleanField, EmailField, PasswordField
from wtforms.validators import DataRequired, Length

from sso.crypto.passwords import MAX_LENGTH
from sso.i18n import N_
from sso.ratelimit import refusals

TOO_LONG = N_("This is too long.")


class SignInForm(FlaskForm):
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


class ChangePasswordForm(FlaskForm):
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


class DecisionForm(FlaskForm):
    """Buttons named `decision`; only the CSRF token to check."""

    _is_told = False

    def validate(self, extra_validators: Any = None) -> bool:
        """Where the token is checked here alone, a missing one is told here (see `errors`)."""
        is_valid = bool(super().validate(extra_validators))
        if not is_valid and not self._is_told:
            self._is_told = True
            reason = "".join(self.errors.get("csrf_token", ())[:1])
            refusals.note_csrf(reason)
        return is_valid
