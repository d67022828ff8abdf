"""The page of name, logo, accent color and links, with a preview of the sign-in page."""

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from flask import current_app, request
from flask_babel import gettext, lazy_gettext
from werkzeug.wrappers import Response
from wtforms import BooleanField, Field

from sso import context
from sso.audit import Actor
from sso.config import branding as fields_of_branding
from sso.config import images
from sso.config.branding import FIELDS, Branding
from sso.config.fields import Input, Kind
from sso.config.images import NO_IMAGE, Image
from sso.endpoints import page
from sso.endpoints.admin.actions import Resource
from sso.endpoints.admin.forms import EditForm, input_of
from sso.endpoints.forms import SignInForm
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import StoredBranding
from sso.observability import setting_values
from sso.services import branding, checks
from sso.services.changes import Differences
from sso.store import branding as stored
from sso.web import forms, headers, static_files

_LOGO = "logo"


class AppearanceForm(EditForm):
    """The fields that the environment does not set. A logo is a file; without one, it stays."""

    remove_logo = BooleanField(lazy_gettext("Remove the logo"))

    def __init__(self, row: StoredBranding | None) -> None:
        super().__init__()
        self._stored_logo = row.logo_digest if row else None
        self.fixed = fields_of_branding.in_environment(context.settings())
        for name in self.fixed & {*_TEXTS}:
            del self[name]

    @property
    def has_logo(self) -> bool:
        return _LOGO not in self.fixed

    def inputs(self) -> list[tuple[Field, Input]]:
        """Return the fields of text, as the form has them and as the table has them."""
        return [(self[name], about) for name, about in _TEXTS.items() if name in self]

    def fill(self, values: Mapping[str, Any]) -> None:
        for field, _ in self.inputs():
            field.data = values.get(field.name)

    def read(self) -> dict[str, Any]:
        """Return the texts; the logo as the digest of the one that is to be there."""
        texts = {field.name: (field.data or "").strip() or None for field, _ in self.inputs()}
        return {**texts, **({_LOGO: self._logo_digest()} if self.has_logo else {})}

    def _logo_digest(self) -> str | None:
        if self.upload:
            return Image("", self.upload).digest
        if self.remove_logo.data:
            return None
        try:  # someone else may have replaced it since the page was shown
            digest = json.loads(self.seen.data or "").get(_LOGO)
        except (ValueError, AttributeError, RecursionError):
            return self._stored_logo
        return digest if isinstance(digest, str) else None

    @cached_property
    def upload(self) -> bytes:
        return request.files[_LOGO].read() if _LOGO in request.files and self.has_logo else b""

    def logo(self) -> Image | None:
        """Return the new logo, `NO_IMAGE` to remove it, or `None` to keep it. Raises
        `ValueError`.
        """
        if self.upload:
            return images.parse(self.upload, checks.MAX_LOGO)
        return NO_IMAGE if self.remove_logo.data and self.has_logo else None

    def title_of(self, name: str) -> str:
        return str(gettext(_TITLES[name]))

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = super().validate(extra_validators)
        for field, _ in self.inputs():
            if text := (field.data or "").strip():
                try:
                    fields_of_branding.checked(field.name, text)
                except ValueError as error:
                    field.errors, is_valid = [error.args[0]], False
        try:
            self.logo()
        except ValueError as error:
            self.form_errors, is_valid = [error.args[0]], False
        return is_valid


_TITLES = {field.name: field.form.label for field in FIELDS.values() if field.form}
_TEXTS = {
    field.name: field.form for field in FIELDS.values() if field.form and field.kind != Kind.IMAGE
}
for _name, _about in _TEXTS.items():
    setattr(AppearanceForm, _name, input_of(FIELDS[_name], _about))


def _described(row: StoredBranding | None) -> dict[str, Any]:
    fixed = fields_of_branding.in_environment(context.settings())
    values = branding.described(row)
    return {name: value for name, value in values.items() if name not in fixed}


APPEARANCE = Resource[StoredBranding | None](
    section="appearance",
    find=stored.find,
    name="stored",
    results={"edited": N_("The changes were saved. All pages show them within seconds.")},
)


def appearance() -> Response:
    """Show name, logo, accent color and links, and change those that the environment leaves."""
    made: list[AppearanceForm] = []

    def form_of(row: StoredBranding | None) -> AppearanceForm:
        made.append(AppearanceForm(row))
        return made[0]

    def save(actor: Actor, _: Any, changes: Differences, expected: dict[str, Any]) -> None:
        values = {name: change["after"] for name, change in changes.items()}
        if _LOGO in values:
            values[_LOGO] = made[0].logo()
        branding.change(actor, values, expected=expected)

    response = APPEARANCE.edit(
        "admin/appearance.html",
        form_of=form_of,
        described=_described,
        save=save,
        done=APPEARANCE.done_texts,
        fixed=[*_fixed()],
        about=FIELDS,
        is_open=len(fields_of_branding.in_environment(context.settings())) < len(FIELDS),
    )
    if request.method == "POST":
        context.forget_branding()
    headers.allow_own_frames()
    return response


def _fixed() -> Iterator[tuple[str, str, str]]:
    """Yield label, value and variable of each field that the environment sets."""
    in_use = setting_values.in_use(context.settings(), os.environ, Branding())
    settings = {value.name: value for value in in_use}
    for name in FIELDS:
        if name in fields_of_branding.in_environment(context.settings()):
            setting = settings[fields_of_branding.setting_of(name)]
            variable = setting.source if setting.source.startswith("SSO_") else setting.name
            yield FIELDS[name].term, str(setting.value), variable


def preview() -> Response:
    """Show the sign-in page with the current branding, or with what a form has, in a frame."""
    form, previewed = AppearanceForm(stored.find()), context.branding()
    errors: list[Message] = []
    if form.is_submitted():
        form.validate()
        previewed, errors = _previewed(form, previewed)
    style = b64encode(static_files.stylesheet(previewed.accent_color)).decode()
    urls = {"sso.css": f"data:text/css;base64,{style}"}
    asset: Callable[[str], str] = current_app.jinja_env.globals["asset"]  # type: ignore[assignment]  # globals are objects
    response = page.render(
        "admin/appearance_preview.html",
        form=SignInForm(),
        errors=errors,
        is_preview=True,
        is_unsent=forms.is_shown_again(),
        brand=static_files.Brand.of(previewed, previewed.logo.data_url if previewed.logo else None),
        asset=lambda name: urls.get(name) or asset(name),
        providers=list(context.upstreams()),
        can_sign_up=context.settings().sign_up != "off",
    )
    headers.allow_framing()
    return response


def _previewed(form: AppearanceForm, current: Branding) -> tuple[Branding, list[Message]]:
    """Return the branding with the valid values of a form, and the errors of the others."""
    values: dict[str, Any] = {}
    errors = []
    for field, _ in form.inputs():
        if field.errors:
            errors.append(branding.refused(field.name, field.errors[0]))
        else:
            values[field.name] = (field.data or "").strip() or None
    if form.form_errors:
        errors.append(branding.refused(_LOGO, form.form_errors[0]))
    elif (logo := form.logo()) is not None:
        values[_LOGO] = logo if logo.data else None
    return replace(current, **values), errors
