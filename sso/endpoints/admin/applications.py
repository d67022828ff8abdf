"""Pages of applications: search, show, register, edit, set up, disable and delete them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from flask import abort, request
from flask_babel import format_decimal, gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor
from sso.config import images
from sso.config.client_fields import FIELDS, OF_MANAGERS
from sso.config.fields import Kind
from sso.endpoints import page
from sso.endpoints.admin import access, admin_page, provisioning, troubleshooting
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.client_form import (
    ClientForm,
    NewClientForm,
    client_values,
    expected_of,
    of_service,
)
from sso.endpoints.admin.forms import EndForm, LogoForm, PresetForm, RotationForm, lines
from sso.flow import moments, permissions
from sso.flow.permissions import Permission
from sso.i18n import N_
from sso.i18n.languages import preset_text
from sso.i18n.message import Message
from sso.models import Client
from sso.models.clients import api_entry
from sso.presets import application_url, installation, loader, templates
from sso.presets.installation import Installation
from sso.presets.preset_file import Block, Note, Preset
from sso.services import agent_identity, checks, clients, preset_clients, roles
from sso.services.changes import Differences
from sso.services.checks import Invalid
from sso.store import apis, client_work, grants
from sso.store import clients as stored_clients

_SHOWN_REFUSALS = 5
_MOST_LISTED = 50  # APIs, beside the field that takes them


_ENDS = (
    N_("All access and refresh tokens of this application, for everyone"),
    N_("Sign-ins through it that are under way"),
)
APPLICATION: Resource[Client] = Resource(
    section="applications",
    page="application",
    query=lambda client: {"id": client.client_id},
    find=admin_page.application,
    name="client",
    variables=lambda client: {"name": agent_identity.label_of(client)},
    actions={
        "end-old-secret": Action(
            label=N_("End the old secret"),
            question=N_(
                "%(name)s can use only its new secret from then on. If it does not have it yet, "
                "nobody can sign in to it."
            ),
            done=N_("The old secret was ended."),
            run=lambda actor, client: clients.end_old_secret(actor, client.client_id),
            applies=lambda client: client.old_secret_ends_at is not None,
            is_danger=True,
        ),
        "disable": Action(
            label=N_("Disable the application"),
            question=N_("Nobody can sign in to %(name)s until you enable it again."),
            done=N_("The application was disabled."),
            run=lambda actor, client: clients.disable(actor, client.client_id),
            applies=lambda client: client.disabled_at is None,
            ends=_ENDS,
            is_danger=True,
        ),
        "enable": Action(
            label=N_("Enable the application"),
            question=N_("People can sign in to %(name)s again. What was ended stays ended."),
            done=N_("The application was enabled."),
            run=lambda actor, client: clients.enable(actor, client.client_id),
            applies=lambda client: client.disabled_at is not None,
            refusal=roles.why_not_enable,
        ),
        "delete": Action(
            label=N_("Delete the application"),
            question=N_("%(name)s is deleted with its registration. This cannot be undone."),
            done=N_("The application was deleted."),
            run=lambda actor, client: clients.delete(actor, client.client_id),
            ends=(*_ENDS, N_("What people have allowed it"), N_("Its client ID and secret")),
            needs=permissions.APPLICATIONS,
            is_danger=True,
            is_removal=True,
        ),
    },
    results={
        "edited": N_("The application was changed."),
        "logo": N_("The logo was changed."),
        "several": N_("The changes were saved for the applications that you chose."),
    },
)


def application() -> Response:
    """Show a client."""
    client = admin_page.application()
    count, _ = grants.live_at(client.client_id, limit=1)
    fields = clients.described(client)
    return APPLICATION.render(
        "admin/application.html",
        client=client,
        logo=page.logo_url(fields.get("logo")),
        facts=_facts(client, fields),
        live_grants=f"{count}+" if count == grants.MOST_COUNTED else count,
        refusals=troubleshooting.newest(client.client_id, _SHOWN_REFUSALS),
        summary=provisioning.summary(client),
        work=_work(client.client_id),
        may_preview=troubleshooting.may_preview(),
        buttons=APPLICATION.buttons(client, "application_act"),
    )


_WORK = {
    client_work.END: N_("The worker is ending its approvals, which no request accepts any more."),
    client_work.NARROW: N_(
        "The worker is ending the approvals of people who may no longer use it."
    ),
    client_work.DELETE: N_("The worker is deleting it. No request accepts it any more."),
}


def _work(client_id: str) -> str | None:
    """Return what the worker is still doing after a change, and how far it is."""
    if not (work := client_work.progress(client_id)):
        return None
    text = gettext(_WORK[work.kind])
    if work.total is None:
        return str(text)
    done, total = format_decimal(work.done), format_decimal(work.total)
    return f"{text} {gettext('Approvals done: %(done)s of %(total)s.', done=done, total=total)}"


# The groups come first.
_FACTS = sorted(
    ((field, field.fact) for field in FIELDS.values() if field.fact),
    key=lambda pair: pair[0].name != "groups",
)


def _facts(client: Client, fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a line for each field that the page has: its title, and a text or URLs."""
    for field, fact in _FACTS:
        title = fact.title or (field.form.label if field.form else "")
        value = fields.get(field.name)
        if fact.each_time and client.always_asks:
            yield {"title": title, "text": gettext(fact.each_time)}
        elif field.kind is Kind.SWITCH:
            if text := fact.on if value else fact.off:
                yield {"title": title, "text": gettext(text)}
        elif not value and fact.empty:
            yield {"title": title, "text": gettext(fact.empty)}
        elif value and field.kind in (Kind.URL, Kind.REDIRECT_URIS, Kind.ORIGINS):
            yield {"title": title, "urls": value if isinstance(value, list) else [value]}
        elif value and field.kind is Kind.APIS:
            yield {"title": title, "links": list(_links(value))}
        elif value and field.kind is Kind.KEY_SET:
            yield {"title": title, "text": " · ".join(map(_key_name, value["keys"]))}
        elif value and field.kind is Kind.ISSUERS:
            yield {"title": title, "text": " · ".join(value), "is_technical": True}
        elif value and field.kind in (
            Kind.NAMES,
            Kind.ROLES,
            Kind.CLAIMS,
            Kind.PATHS,
            Kind.ATTRIBUTES,
        ):
            yield {"title": title, "text": ", ".join(value)}
        elif value and field.kind is Kind.CHOICES:
            titles = [gettext(field.titles[choice]) for choice in value]
            yield {"title": title, "text": " · ".join(titles)}
        elif value and value in field.titles:
            yield {"title": title, "text": gettext(field.titles[value])}
        elif value:
            yield {"title": title, "text": value, "is_technical": True}


def _key_name(key: Mapping[str, Any]) -> str:
    name = " ".join(str(key[name]) for name in ("kty", "crv", "alg") if key.get(name))
    return f"{name}: {key['kid']}" if key.get("kid") else name


def _links(entries: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each API of a client, with its scopes, and the URL of its page if it opens."""
    has_page = access.staff().may_open("api")
    rows = apis.with_identifiers([api_entry(entry)[0] for entry in entries])
    for entry in entries:
        identifier, names = api_entry(entry)
        if row := rows.get(identifier):
            text = row.name if names is None else f"{row.name}: {', '.join(names)}"
            yield text, admin_page.url("api", id=row.api_id) if has_page else None


def act() -> Response:
    """Ask before an action, then carry it out."""
    return APPLICATION.act()


def rotate() -> Response:
    """Give a client a new secret, and show it."""
    client, form = admin_page.application(), RotationForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            keep_old = timedelta(hours=int(form.hours.data))
            actor = access.staff().actor
            client, secret = clients.rotate_secret(actor, client.client_id, keep_old, form.end)
            return admin_page.render(
                "admin/application_secret.html",
                "applications",
                client=client,
                secret=secret,
                issuer=context.settings().issuer_of(client),
            )
    if refusal.is_refused:
        client = admin_page.application()
    return admin_page.form_page(
        "admin/application_rotate.html", "applications", form, refusal, client=client
    )


def limit() -> Response:
    """Edit when the secret of a client ends."""
    return APPLICATION.edit(
        "admin/application_limit.html",
        form_of=lambda _: EndForm(),
        described=lambda client: {"ends_at": moments.text_of(client.secret_expires_at)},
        save=lambda actor, client, changes, _: clients.limit_secret(
            actor, client.client_id, changes["ends_at"]["after"]
        ),
    )


def logo() -> Response:
    """Replace or remove the logo of a client."""
    client, form = admin_page.application(), LogoForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            clients.change(access.staff().actor, client.client_id, {"logo": _image(form.image)})
            return APPLICATION.done("logo", client)
    if refusal.is_refused:
        client = admin_page.application()
    return admin_page.form_page(
        "admin/application_logo.html",
        "applications",
        form,
        refusal,
        client=client,
        logo=page.logo_url(stored_clients.logo_digest(client.client_id)),
    )


def _image(data: bytes) -> images.Image:
    """Return the image that was uploaded, if any. Raises `Invalid`."""
    try:
        return images.parse(data, checks.MAX_LOGO) if data else images.NO_IMAGE
    except ValueError as error:
        raise Invalid([error.args[0]]) from None


_MISSING = Message("This field is required.")


def new() -> Response:
    """Choose a known application, or register one by hand."""
    return admin_page.render(
        "admin/application_new.html",
        "applications",
        presets=[
            templates.translated(preset, preset_text)
            for preset in sorted(_presets().values(), key=lambda preset: preset.title.casefold())
        ],
    )


def by_hand() -> Response:
    """Register a client."""
    form = NewClientForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            client, secret = clients.register(access.staff().actor, form.registration())
            return _registered(client, secret)
    return admin_page.form_page(
        "admin/application_edit.html",
        "applications",
        form,
        refusal,
        client=None,
        apis=apis.every()[:_MOST_LISTED],
    )


def edit() -> Response:
    """Edit a registration."""
    return APPLICATION.edit(
        "admin/application_edit.html",
        form_of=_form_of,
        described=lambda client: client_values(client, _form_of(client).names),
        save=_save,
        apis=apis.every()[:_MOST_LISTED] if access.staff().may_open("apis") else (),
    )


def _form_of(client: Client) -> ClientForm:
    """Return the form of a client, with the fields that the visitor may change."""
    is_whole = access.staff().may(Permission.APPLICATIONS)
    return ClientForm(client, None if is_whole else OF_MANAGERS)


def _save(actor: Actor, client: Client, changes: Differences, expected: dict[str, Any]) -> None:
    values = of_service({name: change["after"] for name, change in changes.items()})
    clients.change(actor, client.client_id, values, expected=expected_of(client, expected))


def from_preset() -> Response:
    """Register a known application, and show how to set it up."""
    preset = _preset()
    form = PresetForm.of(preset)
    form.client_name.description = preset.title
    with Refusal() as refusal:
        if form.validate_on_submit() and (application := _installation(form, preset)):
            fields = {
                "client_name": (form.client_name.data or "").strip(),
                "groups": lines(form.groups.data),
            }
            client, secret = preset_clients.connect(
                access.staff().actor,
                application,
                context.settings().base_url,
                {name: value for name, value in fields.items() if value},
            )
            return _registered(client, secret)
    return admin_page.form_page(
        "admin/application_preset.html", "applications", form, refusal, preset=preset
    )


def setup() -> Response:
    """Show how to set up a client of a preset, without its secret."""
    client = admin_page.application()
    if "preset" not in client.client_metadata:
        abort(404)
    notes: Sequence[Note] = ()
    blocks: Sequence[Block] = ()
    with Refusal() as refusal:
        installed = _installation_of(client)
        blocks = _blocks(client, installed, preset_clients.SECRET_PLACEHOLDER)
        notes = installed.preset.notes
    return admin_page.render(
        "admin/application_setup.html",
        "applications",
        client=client,
        notes=notes,
        blocks=blocks,
        errors=refusal.errors,
    )


def _registered(client: Client, secret: str) -> Response:
    """Render the page of a new client with its secret, which is shown once. Commits."""
    instructions: dict[str, Any] = {}
    if "preset" in client.client_metadata:
        installed = _installation_of(client)
        blocks = _blocks(client, installed, secret or preset_clients.SECRET_PLACEHOLDER)
        other_clients = preset_clients.same_place(client)
        instructions = {"preset": installed.preset, "blocks": blocks, "others": other_clients}
    return admin_page.render(
        "admin/application_secret.html",
        "applications",
        client=client,
        secret=secret,
        issuer=context.settings().issuer_of(client),
        saml_urls={
            name: context.settings().base_url + path for name, path in templates.SAML_URLS.items()
        },
        is_new=True,
        **instructions,
    )


def _installation_of(client: Client) -> Installation:
    installed = preset_clients.installation_of(client)
    return replace(installed, preset=templates.translated(installed.preset, preset_text))


def _blocks(client: Client, installed: Installation, secret: str) -> list[Block]:
    return preset_clients.setup(client, installed, context.settings().base_url, secret=secret)


def _preset() -> Preset:
    preset = _presets().get(request.args.get("preset", "")) or abort(404)
    return templates.translated(preset, preset_text)


def _presets() -> dict[str, Preset]:
    """Return the presets without keys; those with keys are registered by command."""
    return {preset.name: preset for preset in loader.every() if not preset.has_keys}


def _installation(form: PresetForm, preset: Preset) -> Installation | None:
    """Return the installation in a form, or `None` after adding errors to its fields."""
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
