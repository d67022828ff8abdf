"""The forms of the pages that mails lead to, or that cause them."""

from flask_babel import lazy_gettext
from flask_wtf import FlaskForm
from wtforms import EmailField, Field, PasswordField, StringField
from wtforms.validators import DataRequired, Length, ValidationError

from sso import context
from sso.config import email_addresses
from sso.crypto import passwords
from sso.endpoints.forms import PageForm
from sso.i18n import N_


def _address(_: FlaskForm, field: Field) -> None:
    """Takes the one spelling of an address in place of what was typed."""
    try:
        field.data = email_addresses.normalized(field.data or "")
    except ValueError:
        raise ValidationError(N_("This is not an email address.")) from None


def _reachable(_: FlaskForm, field: Field) -> None:
    """Takes no domain of a private network, unless the operator offers accounts for it."""
    address = str(field.data)
    offered = context.settings().sign_up.split()
    if not (email_addresses.is_public(address) or email_addresses.domain(address) in offered):
        raise ValidationError(N_("Mail cannot reach this address. Enter another one."))


def _name(_: FlaskForm, field: Field) -> None:
    field.data = (field.data or "").strip()
    if not field.data or not field.data.isprintable():
        raise ValidationError(N_("Enter your name, in one line."))


def _good_password(form: "_WithNewPassword", field: Field) -> None:
    if fault := passwords.weakness(field.data or "", form.about):
        raise ValidationError(fault)


class _WithNewPassword(PageForm):
    """A form in which a password is chosen; `about` is what it may not be made of."""

    about: tuple[str, ...] = ()


class AddressForm(PageForm):
    """An address to which a mail is asked for."""

    email = EmailField(
        lazy_gettext("Email"),
        [DataRequired(N_("Enter your email address.")), Length(max=320), _address],
    )


class SignUpForm(PageForm):
    """An address for which somebody wants an account."""

    email = EmailField(
        lazy_gettext("Email"),
        [DataRequired(N_("Enter your email address.")), Length(max=320), _address, _reachable],
    )


class NewPasswordForm(_WithNewPassword):
    new_password = PasswordField(
        lazy_gettext("New password"), [DataRequired(N_("Enter a new password.")), _good_password]
    )


class NewAccountForm(_WithNewPassword):
    """What is missing when the address is proven."""

    name = StringField(
        lazy_gettext("Your name"), [DataRequired(N_("Enter your name.")), Length(max=200), _name]
    )
    new_password = PasswordField(
        lazy_gettext("Password"), [DataRequired(N_("Enter a password.")), _good_password]
    )


class ChangeEmailForm(PageForm):
    """The password proves that it is still the same person."""

    action = StringField(default="")

    email = EmailField(
        lazy_gettext("New email address"),
        [DataRequired(N_("Enter the new address.")), Length(max=320), _address, _reachable],
    )
    password = PasswordField(
        lazy_gettext("Your password"),
        [DataRequired(N_("Enter your password.")), Length(max=passwords.MAX_LENGTH)],
    )
