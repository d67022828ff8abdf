"""Applications: found, shown, registered from a preset or by hand, changed, disabled, deleted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor
from sso.config import images
from sso.config.client_fields import FIELDS, Kind
from sso.endpoints import page
from sso.endpoints.admin import access, pages, troubleshooting
from sso.endpoints.admin.forms import (
    ClientForm,
    ConfirmForm,
    LogoForm,
    PresetForm,
    RotationForm,
    client_seen_of,
    lines,
)
from sso.extensions import db
from sso.i18n import N_
from sso.i18n.languages import preset_text
from sso.i18n.message import Message
from sso.models import Client
from sso.presets import application_url, installation, loader, templates
from sso.presets.installation import Installation
from sso.presets.schema import Block, Note, Preset, PresetError
from sso.services import changes as differences
from sso.services import checks, clients, connections
from sso.services.changes import Changed, Differences
from sso.services.checks import Invalid
from sso.store import clients as stored_clients
from sso.store import grants

_MOST_FOUND = 100
_SHOWN_REFUSALS = 5


@dataclass(frozen=True)
class Action:
    """What a button on an application's page does: asked about first, then one service call."""

    label: str
    question: str
    done: str
    run: Callable[[Actor, str], Any]
    applies: Callable[[Client], bool] = lambda _: True
    ends: tuple[str, ...] = ()
    is_danger: bool = False


_ENDS = (
    N_("All access and refresh tokens of this application, for everyone"),
    N_("Sign-ins through it that are under way"),
)
ACTIONS = {
    "disable": Action(
        N_("Disable the application"),
        N_("Nobody can sign in to %(name)s until you enable it again."),
        N_("The application was disabled."),
        clients.disable,
        lambda client: client.disabled_at is None,
        _ENDS,
        is_danger=True,
    ),
    "enable": Action(
        N_("Enable the application"),
        N_("People can sign in to %(name)s again. What was ended stays ended."),
        N_("The application was enabled."),
        clients.enable,
        lambda client: client.disabled_at is not None,
    ),
    "delete": Action(
        N_("Delete the application"),
        N_("%(name)s is deleted with its registration. This cannot be undone."),
        N_("The application was deleted."),
        clients.delete,
        ends=(*_ENDS, N_("What people have allowed it"), N_("Its client ID and secret")),
        is_danger=True,
    ),
}
_DONE = {name: action.done for name, action in ACTIONS.items()} | {
    "changed": N_("The application was changed."),
    "logo": N_("The logo was changed."),
}


def applications() -> Response:
    """All clients, the newest first; or those whose name, ID or URL has a text."""
    text = pages.searched()
    if text:
        found, neighbours = stored_clients.having(text), {}
    else:
        part = stored_clients.page_of(pages.cursor(stored_clients.NEWEST_FIRST))
        found, neighbours = list(part.rows), pages.neighbours(part)
    return pages.render(
        "admin/applications.html",
        "applications",
        done=_DONE,
        clients=found[:_MOST_FOUND],
        is_cut=len(found) > _MOST_FOUND,
        text=text,
        pages=neighbours,
    )


def application() -> Response:
    """One client."""
    client = pages.application()
    count, _ = grants.live_at(client.client_id, limit=1)
    fields = clients.described(client)
    return pages.render(
        "admin/application.html",
        "applications",
        done=_DONE,
        client=client,
        logo=page.logo_url(fields.get("logo")),
        facts=_facts(fields),
        live_grants=f"{count}+" if count == grants.MOST_COUNTED else count,
        refusals=troubleshooting.newest(client.client_id, _SHOWN_REFUSALS),
        actions=[(name, one) for name, one in ACTIONS.items() if one.applies(client)],
    )


# Who may use it comes first.
_FACTS = sorted(
    ((field, field.fact) for field in FIELDS.values() if field.fact),
    key=lambda pair: pair[0].name != "groups",
)


def _facts(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a line for each field that the page has: its title, and a text or URLs."""
    for field, fact in _FACTS:
        title = fact.title or (field.form.label if field.form else "")
        value = fields.get(field.name)
        if field.kind is Kind.SWITCH:
            yield {"title": title, "text": gettext(fact.on if value else fact.off)}
        elif not value and fact.empty:
            yield {"title": title, "text": gettext(fact.empty)}
        elif value and field.kind in (Kind.URL, Kind.REDIRECT_URIS):
            yield {"title": title, "urls": value if isinstance(value, list) else [value]}
        elif value and field.kind is Kind.NAMES:
            yield {"title": title, "text": ", ".join(value)}
        elif value and value in field.titles:
            yield {"title": title, "text": gettext(field.titles[value])}
        elif value:
            yield {"title": title, "text": value, "is_technical": True}


def act() -> Response:
    """Asks before one of the actions, and does it."""
    client, name = pages.application(), request.args.get("do", "")
    action = ACTIONS.get(name)
    if action is None or not action.applies(client):
        abort(404)
    form = ConfirmForm()
    if form.validate_on_submit():
        try:
            action.run(access.staff().actor, client.client_id)
        except LookupError:  # deleted at this moment
            abort(404)
        if name == "delete":
            return pages.done("applications", name)
        return pages.done("application", name, id=client.client_id)
    return pages.ask(
        "applications",
        form,
        title=gettext(action.label),
        question=gettext(action.question, name=client.name),
        button=gettext(action.label),
        back=pages.url("application", id=client.client_id),
        ends=action.ends,
        is_danger=action.is_danger,
    )


def rotate() -> Response:
    """Give a client a new secret, which the answer shows."""
    client, form, errors = pages.application(), RotationForm(), []
    if form.validate_on_submit():
        keep_old = timedelta(hours=int(form.hours.data))
        actor = access.staff().actor
        try:
            client, secret = clients.rotate_secret(actor, client.client_id, keep_old)
            return pages.render(
                "admin/application_secret.html",
                "applications",
                client=client,
                secret=secret,
                issuer=context.settings().issuer,
            )
        except LookupError:
            abort(404)
        except checks.Invalid as error:
            errors = error.errors
            db.session.rollback()
            client = pages.application()
    return pages.render(
        "admin/application_rotate.html", "applications", client=client, form=form, errors=errors
    )


def logo() -> Response:
    """Replace or remove the logo of a client."""
    client, form, errors = pages.application(), LogoForm(), []
    if form.validate_on_submit():
        try:
            image = images.NO_IMAGE
            if data := form.image:
                image = images.parse(data, checks.MAX_LOGO)
            clients.change(access.staff().actor, client.client_id, {"logo": image})
        except LookupError:
            abort(404)
        except checks.Invalid as error:  # the rules have changed since it was registered
            errors = error.errors
        except ValueError as error:
            errors = [error.args[0]]
        else:
            return pages.done("application", "logo", id=client.client_id)
    return pages.render(
        "admin/application_logo.html",
        "applications",
        client=client,
        form=form,
        errors=errors,
        logo=page.logo_url(stored_clients.logo_digest(client.client_id)),
    )


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
        try:
            client, secret = clients.register(access.staff().actor, form.read())
            return _registered(client, secret)
        except Invalid as error:
            errors = error.errors
            db.session.rollback()
    return _form(form, None, errors, {})


def edit() -> Response:
    """Changes a registration. What another administrator changed meanwhile is shown first."""
    client = pages.application()
    form, errors, others = ClientForm(client), [], Differences()
    now = client_seen_of(clients.described(client))
    if form.validate_on_submit():
        seen, mine = form.was_seen() or now, form.read()
        wanted = {name: mine[name] for name in differences.between(seen, mine)}
        try:
            if wanted:
                actor = access.staff().actor
                clients.change(actor, client.client_id, wanted, seen=seen)
            return pages.done("application", "changed", id=client.client_id)
        except LookupError:
            abort(404)
        except Changed as changed:
            others = changed.differences
            now = client_seen_of(clients.described(client))
            form.show({**now, **wanted})
        except Invalid as error:
            errors, now = error.errors, seen
            db.session.rollback()
            client = pages.application()
    form.remember(now)
    return _form(form, client, errors, others)


def from_preset() -> Response:
    """Register a known application, and show how to set it up."""
    preset = _preset()
    form, errors = PresetForm.of(preset), []
    form.client_name.description = preset.title
    if form.validate_on_submit() and (found := _installation(form, preset)):
        fields = {
            "client_name": (form.client_name.data or "").strip(),
            "groups": lines(form.groups.data),
        }
        try:
            client, secret = connections.connect(
                access.staff().actor,
                found,
                context.settings().base_url,
                {name: value for name, value in fields.items() if value},
            )
            return _registered(client, secret)
        except (PresetError, Invalid) as error:
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
