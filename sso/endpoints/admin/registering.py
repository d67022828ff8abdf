"""Applications are registered, from a preset or by hand, and changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flask import abort, request
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.admin import access, pages
from sso.endpoints.admin.application_forms import ClientForm, PresetForm, seen_of
from sso.endpoints.admin.forms import lines
from sso.extensions import db
from sso.i18n.languages import preset_text
from sso.i18n.message import Message
from sso.models import Client
from sso.presets import application_url, installation, loader, templates
from sso.presets.installation import Installation
from sso.presets.schema import Block, Note, Preset, PresetError
from sso.services import changes as differences
from sso.services import clients, connections
from sso.services.changes import Changed, Differences
from sso.services.checks import RegistrationError
from sso.services.clients import SWITCHES

_MISSING = Message("This field is required.")
Errors = Sequence[str]


def new() -> Response:
    """Choose a known application, or register one by hand."""
    return pages.render(
        "admin/application_new.html",
        "applications",
        presets=[
            templates.translated(preset, preset_text)
            for preset in sorted(_presets().values(), key=lambda one: one.title.casefold())
        ],
    )


def by_hand() -> Response:
    """Register a client."""
    form, errors = ClientForm(), []
    if form.validate_on_submit():
        metadata, switches = _parted(form.read())
        try:
            client, secret = clients.register(access.staff().actor, metadata, switches=switches)
            return _registered(client, secret)
        except RegistrationError as error:
            errors = error.errors
            db.session.rollback()
    return _form(form, None, errors, {})


def edit() -> Response:
    """Changes a registration. What another administrator changed meanwhile is shown first."""
    client = pages.application()
    form, errors, others = ClientForm(client), [], Differences()
    now = seen_of(clients.described(client))
    if form.validate_on_submit():
        seen, mine = form.was_seen() or now, form.read()
        wanted = {name: mine[name] for name in differences.between(seen, mine)}
        metadata, switches = _parted(wanted)
        try:
            if wanted:
                actor = access.staff().actor
                clients.change(actor, client.client_id, metadata, switches=switches, seen=seen)
            return pages.done("application", "changed", id=client.client_id)
        except LookupError:
            abort(404)
        except Changed as changed:
            others = changed.differences
            now = seen_of(clients.described(client))
            form.show({**now, **wanted})
        except RegistrationError as error:
            errors, now = error.errors, seen
            db.session.rollback()
            client = pages.application()
    form.remember(now)
    return _form(form, client, errors, others)


def _parted(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    """Metadata, and switches."""
    switches = {name: values[name] for name in SWITCHES if name in values}
    return {name: value for name, value in values.items() if name not in SWITCHES}, switches


def from_preset() -> Response:
    """Register a known application, and show how to set it up."""
    preset = _preset()
    form, errors = PresetForm.of(preset), []
    form.client_name.description = preset.title
    if form.validate_on_submit() and (found := _installation(form, preset)):
        metadata = {
            "client_name": (form.client_name.data or "").strip(),
            "groups": lines(form.groups.data),
        }
        try:
            client, secret = connections.connect(
                access.staff().actor,
                found,
                context.settings().base_url,
                {name: value for name, value in metadata.items() if value},
                {},
            )
            return _registered(client, secret)
        except (PresetError, RegistrationError) as error:
            errors = error.errors
            db.session.rollback()
    return pages.render(
        "admin/application_preset.html", "applications", preset=preset, form=form, errors=errors
    )


def setup() -> Response:
    """How a client that was registered from a preset is set up, without its secret."""
    client = pages.application()
    if "preset" not in client.client_metadata:
        abort(404)
    notes: Sequence[Note] = ()
    blocks: Sequence[Block] = ()
    errors: Errors = ()
    try:
        found = _installation_of(client)
        blocks = _blocks(client, found, connections.SECRET_PLACEHOLDER)
        notes = found.preset.notes
    except PresetError as error:
        errors = error.errors
    return pages.render(
        "admin/application_setup.html",
        "applications",
        client=client,
        notes=notes,
        blocks=blocks,
        errors=errors,
    )


def _registered(client: Client, secret: str) -> Response:
    """The one page that shows a new secret. Commits."""
    shown: dict[str, Any] = {}
    if "preset" in client.client_metadata:
        found = _installation_of(client)
        blocks = _blocks(client, found, secret or connections.SECRET_PLACEHOLDER)
        others = connections.same_place(client)
        shown = {"preset": found.preset, "blocks": blocks, "others": others}
    return pages.render(
        "admin/application_secret.html",
        "applications",
        client=client,
        secret=secret,
        issuer=context.settings().issuer,
        is_new=True,
        **shown,
    )


def _installation_of(client: Client) -> Installation:
    found = connections.installation_of(client)
    return replace(found, preset=templates.translated(found.preset, preset_text))


def _blocks(client: Client, found: Installation, secret: str) -> list[Block]:
    return connections.setup(client, found, context.settings().base_url, secret=secret)


def _form(form: ClientForm, client: Client | None, errors: Errors, others: Differences) -> Response:
    return pages.render(
        "admin/application_edit.html",
        "applications",
        status=409 if others else 200,
        others=pages.in_words(
            (form[name].label.text, one["before"], one["after"]) for name, one in others.items()
        ),
        form=form,
        client=client,
        errors=errors,
    )


def _preset() -> Preset:
    found = _presets().get(request.args.get("preset", "")) or abort(404)
    return templates.translated(found, preset_text)


def _presets() -> dict[str, Preset]:
    """Those without keys: an application that has some is registered by command."""
    return {preset.name: preset for preset in loader.every() if not preset.has_keys}


def _installation(form: PresetForm, preset: Preset) -> Installation | None:
    """What was entered; what is wrong with it stands at the fields."""
    url = (form.url.data or "").strip() or None
    options = {name: (field.data or "").strip() for name, field in form.options.items()}
    options = {name: value for name, value in options.items() if value}
    for name in installation.missing(preset, url, options):
        (form.url if name == "url" else form.options[name]).errors = [_MISSING]
    if url and preset.url is not None:
        try:
            application_url.parse(url)
        except ValueError as error:
            form.url.errors = [error.args[0]]
    for name, value in options.items():
        if problem := installation.option_problem(preset, name, value):
            form.options[name].errors = [problem]
    if any(field.errors for field in form):
        return None
    return installation.install(preset, url if preset.url is not None else None, options)
