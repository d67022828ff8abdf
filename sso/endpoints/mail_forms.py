"""The forms of the pages that mails lead to, or that cause them."""

from flask_wtf import FlaskForm
from wtforms import EmailField, Field, PasswordField, StringField
from wtforms.validators import DataRequired, Length, ValidationError

from sso import email_addresses, passwords


def _address(_: FlaskForm, field: Field) -> None:
    """Takes the one spelling of an address in place of what was typed."""
    try:
        field.data = email_addresses.normalized(field.data or "")
    except ValueError:
        raise ValidationError("This is not an e-mail address.") from None


def _name(_: FlaskForm, field: Field) -> None:
    field.data = (field.data or "").strip()
    if not field.data or not field.data.isprintable():
        raise ValidationError("Enter your name, in one line.")


def _good_password(_: FlaskForm, field: Field) -> None:
    if fault := passwords.fault(field.data or ""):
        raise ValidationError(fault[0].upper() + fault[1:] + ".")


class AddressForm(FlaskForm):
    """An address to which a mail is asked for."""

    email = EmailField(
        "E-mail", [DataRequired("Enter your e-mail address."), Length(max=320), _address]
    )


class NewPasswordForm(FlaskForm):
    new_password = PasswordField(
        "New password", [DataRequired("Enter a new password."), _good_password]
    )


class NewAccountForm(FlaskForm):
    """What is missing when the address is proven."""

    name = StringField("Your name", [DataRequired("Enter your name."), Length(max=200), _name])
    new_password = PasswordField("Password", [DataRequired("Enter a password."), _good_password])


class ChangeEmailForm(FlaskForm):
    """The password proves that it is still the same person."""

    email = EmailField(
        "New e-mail address", [DataRequired("Enter the new address."), Length(max=320), _address]
    )
    password = PasswordField(
        "Your password",
        [DataRequired("Enter your password."), Length(max=passwords.MAX_LENGTH)],
    )
