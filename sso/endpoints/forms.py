"""The forms of the pages."""

from typing import TYPE_CHECKING, Any

from flask import request
from flask_babel import lazy_gettext
from wtforms import (
    BooleanField,
    EmailField,
    Field,
    PasswordField,
    SelectMultipleField,
    StringField,
)
from wtforms.validators import DataRequired, Length, ValidationError

from sso import context
from sso.config import email_addresses
from sso.crypto import passwords
from sso.extensions import db
from sso.flow.scopes import SCOPES
from sso.i18n import N_
from sso.i18n.message import Message
from sso.process import program
from sso.ratelimit import refusals
from sso.services import checks
from sso.services.checks import Invalid
from sso.web import routing
from sso.web.forms import PageForm

if TYPE_CHECKING:
    from sso.config import picture_files
    from sso.config.picture_files import Picture
else:
    picture_files = program.late_module("sso.config.picture_files")  # Pillow: 5 MB

TOO_LONG = N_("This is too long.")


class _Text(StringField):
    """A text field that is empty if nothing was submitted."""

    data: str

    def process_data(self, value: str | None) -> None:
        self.data = value or ""


class DecisionForm(PageForm):
    """Buttons for a decision, each with its own `value`."""

    decision = StringField()


class SignOutForm(DecisionForm):
    """The question whether to sign out.

    The end-session route checks no CSRF token: this form does, and records a missing one.
    """

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = bool(super().validate(extra_validators))
        if not is_valid:
            refusals.record_csrf("".join(self.errors.get("csrf_token", ())[:1]))
        return is_valid


class ConsentForm(DecisionForm):
    """Allow or deny; each scope has a checkbox `scope_NAME`, or `api_scope` if it is of an API.

    `offered`: the scopes that were on the page, or `None` if it had no checkboxes. `duration`, of
    agents: `LASTING`, or for this once.
    """

    LASTING = "lasting"

    offered = StringField()
    duration = StringField()
    api_scope = SelectMultipleField(validate_choice=False)

    def unticked(self, offered: frozenset[str]) -> frozenset[str]:
        """Return the offered scopes whose checkboxes were left empty."""
        if self.offered.data is None:
            return frozenset()
        ticked = {name for name in SCOPES if self[f"scope_{name}"].data}
        return offered - ticked - set(self.api_scope.data or ())


for _scope in SCOPES:
    setattr(ConsentForm, f"scope_{_scope}", BooleanField())


class TermsForm(PageForm):
    """The terms of service: the version on the page, the checkbox, or the button to cancel."""

    decision = StringField()
    version = _Text()
    accept = BooleanField()

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = bool(super().validate(extra_validators))
        if is_valid and not self.accept.data:
            self.accept.errors = [N_("Tick the box to go on.")]
        return is_valid and bool(self.accept.data)


class DeviceCodeForm(PageForm):
    """The code that a device shows."""

    user_code = _Text()


class PasskeyForm(PageForm):
    """The form of `passkeys.js`: the credential, and the challenge of the page."""

    credential = _Text()
    challenge = _Text()
    remember = BooleanField()


class SecondFactorForm(PasskeyForm):
    """A code, a recovery code or a passkey, or the button to cancel.

    `unsent`: the values of a waiting form of an admin page (see `web.forms`).
    """

    decision = StringField()
    unsent = _Text()
    code = _Text()
    recovery_code = _Text()


class FactorsForm(PasskeyForm):
    """The actions on second factors. `passkey`: a passkey's id; `name`: its new name.

    `sheet`: the signed recovery codes that were shown.
    """

    action = _Text()
    name = _Text()
    passkey = _Text()
    sheet = _Text()


class TotpForm(PageForm):
    """A code of the authenticator app, for the secret in `setup`."""

    setup = _Text()
    code = _Text()


class EmailedCodeForm(PageForm):
    """A mailed code, or the action that requests one."""

    action = _Text()
    code = _Text()


class AccountForm(PageForm):
    """An action, and its session, client or language."""

    action = _Text()
    session = _Text()
    client = _Text()
    locale = _Text()


class LanguageForm(PageForm):
    """A language, and the page on which it was chosen. The form checks the CSRF token itself."""

    language = _Text()
    back = _Text()


def _normalize_email(_: PageForm, field: Field) -> None:
    """Normalize the email address in the field."""
    try:
        field.data = email_addresses.normalized(field.data or "")
    except ValueError:
        raise ValidationError(N_("This is not an email address.")) from None


def _check_reachable(_: PageForm, field: Field) -> None:
    """Refuse domains of private networks, unless the operator offers accounts for them."""
    email = str(field.data)
    offered = context.settings().sign_up.split()
    if not (email_addresses.is_public(email) or email_addresses.domain(email) in offered):
        raise ValidationError(N_("This address cannot receive email. Enter another one."))


def _normalize_name(_: PageForm, field: Field) -> None:
    field.data = (field.data or "").strip()
    if not field.data or not field.data.isprintable():
        raise ValidationError(N_("Enter your name on one line."))


def _name_field() -> StringField:
    most = Length(max=checks.MAX_TEXT, message=TOO_LONG)
    missing = DataRequired(N_("Enter your name."))
    return StringField(lazy_gettext("Your name"), [missing, most, _normalize_name])


def _check_strength(form: "_WithNewPassword", field: Field) -> None:
    if weakness := passwords.weakness(field.data or "", form.about):
        raise ValidationError(weakness)


def _email_field(label: Any, if_missing: str, *more: Any) -> EmailField:
    most = Length(max=email_addresses.LONGEST, message=TOO_LONG)
    return EmailField(label, [DataRequired(if_missing), most, *more])


def password_field(label: Any, if_missing: str) -> PasswordField:
    most = Length(max=passwords.MAX_LENGTH, message=TOO_LONG)
    return PasswordField(label, [DataRequired(if_missing), most])


class SignInForm(PageForm):
    """Email and password."""

    email = _email_field(lazy_gettext("Email"), N_("Enter your email address."))
    password = password_field(lazy_gettext("Password"), N_("Enter your password."))
    remember = BooleanField(lazy_gettext("Keep me signed in on this device"))
    upstream = _Text("")  # the button of a provider; WTForms would translate another label


class SignInCodeForm(PageForm):
    """The email address to which a sign-in code is mailed."""

    email = _email_field(lazy_gettext("Email"), N_("Enter your email address."), _normalize_email)
    remember = BooleanField(lazy_gettext("Keep me signed in on this device"))


class ChangePasswordForm(PageForm):
    """A new password, and the old one as proof."""

    old_password = password_field(lazy_gettext("Old password"), N_("Enter your old password."))
    new_password = password_field(lazy_gettext("New password"), N_("Enter a new password."))


class ChangeNameForm(PageForm):
    """The name that applications see."""

    name = _name_field()


class PictureForm(PageForm):
    """The file of a picture; `action` is `REMOVE` to have none."""

    REMOVE = "remove"
    action = _Text()

    def read(self, spender: str) -> "Picture | None":
        """Return the chosen picture; `None` if it shall be removed. Commits.

        `spender`: the email address of the visitor, whose uploads are limited. Raises `Invalid`.
        """
        if self.action.data == self.REMOVE:
            return None
        file = request.files.get("picture")
        if not (data := file.read() if file else b""):
            raise Invalid([Message("it is missing; choose one")])
        routing.spend(spender)
        db.session.commit()  # the transaction must not wait for the picture
        try:
            return picture_files.read(data)
        except ValueError as error:
            raise Invalid([error.args[0]]) from None


class DeleteAccountForm(PageForm):
    """The password, which confirms the action."""

    password = password_field(lazy_gettext("Your password"), N_("Enter your password."))


class ChangeEmailForm(PageForm):
    """The password, which confirms the action."""

    action = _Text()
    email = _email_field(
        lazy_gettext("New email address"),
        N_("Enter the new address."),
        _normalize_email,
        _check_reachable,
    )
    password = password_field(lazy_gettext("Your password"), N_("Enter your password."))


class EmailForm(PageForm):
    """The email address to which a link is mailed."""

    email = _email_field(lazy_gettext("Email"), N_("Enter your email address."), _normalize_email)


class SignUpForm(PageForm):
    """The email address of a new account."""

    email = _email_field(
        lazy_gettext("Email"), N_("Enter your email address."), _normalize_email, _check_reachable
    )


class _WithNewPassword(PageForm):
    """A form with a new password. `about`: texts that it must not consist of.

    `terms_version`: the version of the terms of service that has to be accepted with it, if any.
    """

    about: tuple[str, ...] = ()
    terms_version: str | None = None
    version = _Text()
    accept = BooleanField()

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = bool(super().validate(extra_validators))
        if self.terms_version is None:
            return is_valid
        is_accepted = bool(self.accept.data) and self.version.data == self.terms_version
        if not is_accepted:
            self.accept.errors = [N_("Tick the box to go on.")]
        return is_valid and is_accepted


class NewPasswordForm(_WithNewPassword):
    new_password = PasswordField(
        lazy_gettext("New password"), [DataRequired(N_("Enter a new password.")), _check_strength]
    )


class NewAccountForm(_WithNewPassword):
    """Name and password of a new account, besides its verified email address."""

    name = _name_field()
    new_password = PasswordField(
        lazy_gettext("Password"), [DataRequired(N_("Enter a password.")), _check_strength]
    )
