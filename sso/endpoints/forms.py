"""The forms of the pages."""

from flask_wtf import FlaskForm
from wtforms import BooleanField, EmailField, PasswordField
from wtforms.validators import DataRequired, Length

from sso.passwords import MAX_LENGTH


class SignInForm(FlaskForm):
    """E-mail and password (contract §3)."""

    email = EmailField("E-mail", [DataRequired("Enter your e-mail address."), Length(max=320)])
    password = PasswordField(
        "Password", [DataRequired("Enter your password."), Length(max=MAX_LENGTH)]
    )
    remember = BooleanField("Keep me signed in on this device")


class ChangePasswordForm(FlaskForm):
    """The old password proves that it is still the same person."""

    old_password = PasswordField(
        "Old password", [DataRequired("Enter your old password."), Length(max=MAX_LENGTH)]
    )
    new_password = PasswordField(
        "New password", [DataRequired("Enter a new password."), Length(max=MAX_LENGTH)]
    )


class DecisionForm(FlaskForm):
    """Buttons named `decision`; only the CSRF token to check."""
