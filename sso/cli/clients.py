"""`flask client`: list, show, change and delete applications. `cli.connect` registers them.

Options that change a list are `--add-…`, `--remove-…` and `--set-…`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sso import audit, clock, context
from sso.cli.commands import Group, confirm, json_option, only, print_work, unknown, yes_option
from sso.cli.output import iso, print_changes, print_json, print_line, print_record, print_table
from sso.config import client_fields, images, urls
from sso.config.auth_methods import NO_AUTH_METHOD
from sso.config.client_fields import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    FIELDS,
    JWT_BEARER,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from sso.config.fields import LISTS, SPACED, Field, Kind, Option
from sso.extensions import db
from sso.models import Client, Grant
from sso.process import program
from sso.process.program import COMMAND
from sso.services import agent_identity, checks, clients, groups
from sso.services.changes import ListEdit
from sso.store import client_work, devices, grants, outbox, service_tokens
from sso.store import clients as stored_clients

if TYPE_CHECKING:
    from sso.services import service_providers
else:
    service_providers = program.late_module("sso.services.service_providers")  # 60 ms

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
# Values of lists, where "a" and the name of the option would not be English.
_NOUNS = {
    "acs-url": "a URL that takes assertions",
    "api": "an API",
    "attribute": "an attribute of assertions",
    "event": "an event",
    "exchange-from": "an API whose access tokens it may exchange",
    "id-jag-audience": "a server that its identity assertions may be for",
    "id-jag-issuer": "an issuer whose identity assertions it may bring",
    "proxy-url": "a URL of the application behind the proxy",
    "public-path": "a path that needs no sign-in",
}


@dataclass(frozen=True)
class ListOption:
    """The options of an update that change a list; `field` is its name in the data."""

    field: str
    singular: str
    plural: str
    metavar: str
    may_be_empty: bool = True
    has_spaces: bool = False  # else one text may hold several values, separated by spaces
    also: str = ""  # another name of the option that adds
    former: tuple[str, ...] = ()  # former options, which replaced the list silently

    def options(self) -> tuple[Decorator, ...]:
        add, remove, whole = self.names
        name = self.singular.replace("-uri", " URI").replace("logout-", "logout ")
        noun = _NOUNS.get(self.singular, f"a {name}")
        also = (f"--{self.also}",) if self.also else ()
        emptied = '; "" leaves none.' if self.may_be_empty else "."
        return (
            click.option(add, *also, f"add_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Add {noun}. May be repeated."),
            click.option(remove, f"remove_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Remove {noun}. May be repeated."),
            click.option(whole, f"set_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Replace them all. May be repeated{emptied}"),
            *(self._refused(name) for name in self.former),
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, str, str]:
        return f"--add-{self.singular}", f"--remove-{self.singular}", f"--set-{self.plural}"

    def edit(self, options: dict[str, Any]) -> "ListEdit | None":
        """Take this list's options out of `options`. Raises `UsageError` on contradictions."""
        added, removed, whole = (
            self._values(options.pop(f"{verb}_{self.field}")) for verb in ("add", "remove", "set")
        )
        if whole is not None and (added is not None or removed is not None):
            add, remove, replace = self.names
            raise click.UsageError(f"{replace} replaces the list: leave {add} and {remove} off.")
        if both := set(added or ()) & set(removed or ()):
            raise click.UsageError(f"{sorted(both)[0]!r} is to be both added and removed.")
        if added is removed is whole is None:
            return None
        return ListEdit(tuple(added or ()), tuple(removed or ()), whole)

    def _values(self, texts: Sequence[str]) -> tuple[str, ...] | None:
        if not texts:
            return None
        values = texts if self.has_spaces else [word for text in texts for word in text.split()]
        return tuple(dict.fromkeys(filter(None, values)))

    def _refused(self, name: str) -> Decorator:
        add, remove, whole = self.names
        is_flag = name.startswith("--no-")

        def refuse(_: click.Context, __: click.Parameter, value: object) -> None:
            if value:
                hint = f'use {whole} ""' if is_flag else f"use {whole} for that"
                raise click.UsageError(
                    f"{name} would replace the whole list; {hint}, "
                    f"or {add} and {remove} to change it."
                )

        return click.option(name, hidden=True, expose_value=False, callback=refuse, is_flag=is_flag)


def with_options(*lists: ListOption) -> Decorator:
    """Return a decorator that adds the options of these lists."""
    options = list(chain.from_iterable(option.options() for option in lists))
    return lambda function: decorated(function, options)


def decorated(function: Function, options: Iterable[Decorator]) -> Function:
    """Add options to a function, in the order of its help."""
    for option in reversed(list(options)):
        function = option(function)
    return function


_FIELDS = [(field, field.option) for field in FIELDS.values() if field.option]
_LISTS = [pair for pair in _FIELDS if pair[0].kind in LISTS]
_SWITCHES = [pair for pair in _FIELDS if pair[0].kind is Kind.SWITCH]
_REMOVABLE = [pair for pair in _FIELDS if pair[1].removal]
_NO_VALUES = {field.name: option.no_value for field, option in _FIELDS if option.no_value}
_READERS: Mapping[Kind, Callable[[str], Any]] = {
    Kind.IMAGE: checks.logo,
    Kind.KEY_SET: lambda path: checks.jwks(Path(path)),
    Kind.CERTIFICATES: lambda path: service_providers.certificates(Path(path)),
}


def option_of(field: Field, option: Option, **more: Any) -> Decorator:
    """Return the option that sets a field."""
    value_type: Any = int if field.kind is Kind.NUMBER else None
    if field.kind is Kind.CHOICE:
        value_type = click.Choice(option.choices or field.choices)
    more = {"help": option.help or field.meaning, **more}
    return click.option(field.flag, field.name, type=value_type, metavar=option.metavar, **more)


def list_when_created(field: Field, option: Option) -> Decorator:
    """Return the option that sets a list, of a new client or API."""
    if field.json_type is str:
        return option_of(field, option)
    text = f"{option.help or field.meaning} May be repeated."
    return option_of(field, option, multiple=True, help=text)


def list_when_updated(field: Field, option: Option) -> ListOption:
    """Return the options that change a list."""
    former = (field.flag, *([f"--no-{option.name}s"] if field.may_be_empty else []))
    has_spaces = field.kind in SPACED
    return ListOption(
        field.name, option.name, f"{option.name}s", option.metavar or option.name.upper(),
        field.may_be_empty, has_spaces=has_spaces, also=option.also, former=former,
    )  # fmt: skip


def switch_or_removal(field: Field, option: Option) -> Decorator:
    """Return the option that turns a switch on or off, or the one that removes a value."""
    if option.removal:
        text = option.removal
        return click.option(
            removal_flag(field, option), f"no_{field.name}", is_flag=True, help=text
        )
    flags, text = f"{field.flag}/--no-{option.name}", option.update or field.meaning
    return click.option(flags, field.name, default=None, help=text)


def removal_flag(field: Field, option: Option) -> str:
    """Return the option that removes a value, as it is typed."""
    return f"--{'remove' if field.kind is Kind.IMAGE else 'no'}-{option.name}"


_SHARED = [option_of(*pair) for pair in _FIELDS if pair not in [*_LISTS, *_SWITCHES]]
_EDITS = [list_when_updated(*pair) for pair in _LISTS]
_PRESET = (
    click.option("--preset", metavar="NAME",
                 help=f"A known application; see: {COMMAND} client presets. Other options add "
                      "to it or replace what it says."),
    click.option("--url", help="URL of the preset's application, or of the one behind a proxy."),
    click.option("--option", "preset_options", multiple=True, metavar="NAME=VALUE",
                 help="An option of the preset. May be repeated."),
    click.option("--alternative", metavar="NAME",
                 help="Print one of several ways to set the application up."),
)  # fmt: skip


_METADATA: Decorator = click.option(
    "--metadata", metavar="FILE|URL", help="SAML: the metadata of the service provider."
)


# Options that add a grant type.
_GRANT_OPTIONS = {
    "service": (
        CLIENT_CREDENTIALS,
        "It gets tokens for itself, without a person (client_credentials).",
    ),
    "device": (DEVICE_CODE, "People sign in to it by a code on another device (RFC 8628)."),
    "exchange": (
        TOKEN_EXCHANGE,
        "It may exchange tokens for those of another API (RFC 8693).",
    ),
    "assertions": (
        JWT_BEARER,
        "It may present identity assertions (ID-JAG) of --id-jag-issuer.",
    ),
}


def _grant_option(name: str, about: tuple[str, str], *, is_flag: bool) -> Decorator:
    if is_flag:
        return click.option(f"--{name}", is_flag=True, help=about[1])
    return click.option(f"--{name}/--no-{name}", default=None, help=about[1])


def _grant_types(options: dict[str, Any]) -> list[str] | None:
    """Take the options that choose the grant types of a new client; `None`: as usual."""
    added = [grant for name, (grant, _) in _GRANT_OPTIONS.items() if options.pop(name, False)]
    if not added:
        return None
    needs_browser = not {CLIENT_CREDENTIALS, DEVICE_CODE, JWT_BEARER} & {*added}
    grants = [AUTHORIZATION_CODE] if options.get("redirect_uris") or needs_browser else []
    if AUTHORIZATION_CODE in grants or DEVICE_CODE in added:
        grants.append(REFRESH_TOKEN)
    return [*grants, *added]


def needs_redirect_uri(options: Mapping[str, Any]) -> bool:
    """Return whether a new client with these options signs people in by their browser."""
    kinds = ("service", "device", "assertions", "proxy_urls", "saml", "saml_entity_id", "metadata")
    return not any(options.get(name) for name in kinds)


def create_options(function: Function) -> Function:
    """Add the options of `flask client create`."""
    lists = [list_when_created(*pair) for pair in _LISTS]
    switches = [option_of(*pair, is_flag=True, default=None) for pair in _SWITCHES]
    public = click.option(
        "--public", is_flag=True,
        help="It has no secret: a native, single-page or command-line application.",
    )  # fmt: skip
    grants = [_grant_option(*pair, is_flag=True) for pair in _GRANT_OPTIONS.items()]
    proxy = click.option(
        "--proxy", is_flag=True,
        help="It has no sign-in of its own: the proxy in front of --url asks this server.",
    )  # fmt: skip
    saml = click.option(
        "--saml", is_flag=True,
        help="It speaks SAML: give --metadata, or --entity-id and --acs-url.",
    )  # fmt: skip
    kinds = (public, proxy, saml, _METADATA)
    options: list[Decorator] = [*_PRESET, *_SHARED, *lists, *kinds, *grants, *switches]
    return decorated(function, options)


def update_options(function: Function) -> Function:
    """Add the options of `flask client update`."""
    pairs = [pair for pair in _FIELDS if pair in [*_SWITCHES, *_REMOVABLE]]
    grants = [_grant_option(*pair, is_flag=False) for pair in _GRANT_OPTIONS.items()]
    options = [*_SHARED, *(switch_or_removal(*pair) for pair in pairs), _METADATA, *grants]
    return with_options(*_EDITS)(decorated(function, options))


def fields_given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the options set. Raises `UsageError` and `Invalid`."""
    removed = [pair for pair in _REMOVABLE if options.pop(f"no_{pair[0].name}", False)]
    if options.pop("public", False):
        if options["token_endpoint_auth_method"]:
            raise click.UsageError("--public contradicts --auth-method: there is no secret.")
        options["token_endpoint_auth_method"] = NO_AUTH_METHOD
    imported = _imported(options)
    grant_types = _grant_types(options)
    texts = {name: value for name, value in options.items() if value not in (None, ())}
    for field, option in removed:
        if field.name in texts:
            raise click.UsageError(f"{removal_flag(field, option)} contradicts {field.flag}.")
    fields: dict[str, Any] = {
        field.name: images.NO_IMAGE if field.kind is Kind.IMAGE else None for field, _ in removed
    }
    if grant_types is not None:
        fields["grant_types"] = grant_types
    for name, value in texts.items():
        reader = _READERS.get(FIELDS[name].kind)
        fields[name] = reader(value) if reader else value
        if _NO_VALUES.get(name) == value:
            fields[name] = None
    return {**imported, **fields}


def _imported(options: dict[str, Any]) -> Mapping[str, Any]:
    """Take `--saml` and `--metadata` out of `options`; return the fields of the metadata.

    What the metadata does not have is `None`. Raises `UsageError` and `Invalid`.
    """
    speaks_saml, source = options.pop("saml", None), options.pop("metadata", None)
    if source is None:
        if speaks_saml and not options.get("saml_entity_id"):
            raise click.UsageError("--saml needs --metadata, or --entity-id and --acs-url.")
        return {}
    imported = service_providers.imported(source)
    for note in imported.notes:
        click.echo(note, err=True)
    return imported.fields


def edits_given(options: dict[str, Any]) -> dict[str, ListEdit]:
    """Take the options that change lists out of `options`.

    Raises `UsageError` on contradictions.
    """
    edits = {option.field: edit for option in _EDITS if (edit := option.edit(options))}
    chosen = {
        grant: choice
        for name, (grant, _) in _GRANT_OPTIONS.items()
        if (choice := options.pop(name)) is not None
    }
    if chosen:
        edits["grant_types"] = ListEdit(
            tuple(grant for grant, is_added in chosen.items() if is_added),
            tuple(grant for grant, is_added in chosen.items() if not is_added),
        )
    return edits


group = Group("client", help="Applications that users sign in to.")
client_argument = click.argument("client_id", metavar="ID")
_SHOWN_GRANTS = 50


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all applications."""
    rows = stored_clients.every()
    if as_json:
        print_json([view(client) for client in rows])
    else:
        print_table(
            ("ID", "NAME", "PUBLIC", "FIRST PARTY", "DISABLED", "REGISTERED"),
            [
                (
                    *(c.client_id, agent_identity.described(c), c.is_public, c.first_party),
                    *(c.disabled_at is not None, c.created_at),
                )
                for c in rows
            ],
        )


@group.command("show")
@client_argument
@json_option
def show(client_id: str, as_json: bool) -> None:
    """Show an application's registration and what it has: grants and tokens."""
    client = find_client(client_id)
    count, newest = grants.live_at(client.client_id, limit=_SHOWN_GRANTS)
    programs = devices.programs_of([grant.id for grant in newest])
    more = {
        "live_grants": count,
        "newest_grants": [_grant(grant, programs.get(grant.id)) for grant in newest],
        "logout_tokens_waiting": outbox.logouts_waiting_for(client.client_id),
    }
    if client.secret_expires_at:
        more["secret_ends_at"] = iso(client.secret_expires_at)
    if until := client.old_secret_ends_at:
        more["old_secret_ends_at"] = iso(until)
    counts = ["live_grants", "logout_tokens_waiting"]
    if CLIENT_CREDENTIALS in client.client_metadata["grant_types"]:
        more["live_service_tokens"] = service_tokens.count_live(client.client_id)
        counts.append("live_service_tokens")
    work = client_work.progress(client.client_id)
    if as_json:
        print_json({**view(client), **more, **({"work": work._asdict()} if work else {})})
        return
    show_client(client, as_json)
    for name in counts:
        most = grants.MOST_COUNTED
        more[name] = f"{most} or more" if more[name] == most else more[name]
    print_record([(name, more[name]) for name in counts])
    print_work(work)
    if end := client.secret_expires_at:
        print_line(f"The secret ends at {end:%Y-%m-%d %H:%M} UTC.")
    if until:
        print_line(f"The old secret goes on until {until:%Y-%m-%d %H:%M} UTC.")
    if newest:
        print_line()
        print_table(
            ("USER", "SCOPE", "SESSION", "DEVICE", "SINCE"),
            [(g.user.email, g.scope, g.sid, programs.get(g.id), g.created_at) for g in newest],
        )


@group.command("update")
@client_argument
@update_options
@json_option
def update(client_id: str, as_json: bool, **options: Any) -> None:
    """Change a registration, and print what changed."""
    lists = edits_given(options)
    fields = fields_given(options)
    if not (fields or lists):
        raise click.UsageError("There is nothing to change: give an option.")
    client_id = find_client(client_id).client_id
    with known(client_id):
        client, outcome = clients.change(audit.operator(), client_id, fields, lists=lists)
    db.session.commit()
    if as_json:
        print_json({**view(client), "changes": outcome.changes})
    else:
        show_client(client, as_json)
    added = outcome.changes.get("groups", {}).get("added", [])
    notes = [*outcome.notes, *groups.without_members(added)]
    print_changes(outcome.changes, notes, as_json)


@group.command("disable")
@client_argument
@json_option
def disable(client_id: str, as_json: bool) -> None:
    """Disable an application; its tokens end at once."""
    find_client(client_id, exactly=True)
    with known(client_id):
        client = clients.disable(audit.operator(), client_id)
    db.session.commit()
    show_client(client, as_json)
    if not as_json:
        print_work(client_work.progress(client.client_id))


@group.command("enable")
@client_argument
@json_option
def enable(client_id: str, as_json: bool) -> None:
    """Enable an application again; ended tokens stay ended."""
    client_id = find_client(client_id).client_id
    with known(client_id):
        client = clients.enable(audit.operator(), client_id)
    db.session.commit()
    show_client(client, as_json)


@group.command("delete")
@client_argument
@yes_option
@json_option
def delete(client_id: str, yes: bool, as_json: bool) -> None:
    """Delete an application with its tokens and consents."""
    client = find_client(client_id, exactly=True)
    confirm(f"Delete the application {agent_identity.described(client)} ({client.client_id})?", yes)
    with known(client_id):
        clients.delete(audit.operator(), client_id)
    db.session.commit()
    is_gone = stored_clients.find(client_id) is None
    if as_json:
        print_json({"client_id": client_id, "deleted": is_gone})
        return
    print_line(f"Deleted {client_id}." if is_gone else f"No request accepts {client_id} any more.")
    print_work(client_work.progress(client_id))


def find_client(client_id: str, *, exactly: bool = False) -> Client:
    """Return the client with this client ID or name, or the only one that begins like this.

    `exactly`: only by client ID. Raises `Failure`.
    """
    if client := one_client(client_id, exactly=exactly):
        return client
    raise unknown("client", client_id)


def one_client(client_id: str, *, exactly: bool = False) -> Client | None:
    """Return the client as `find_client` does, or `None` if there is none."""
    return only(
        stored_clients.matching(client_id),
        client_id,
        lambda client: f"{client.client_id} ({agent_identity.described(client)})",
        "the client ID",
        exactly=exactly,
    )


@contextmanager
def known(client_id: str) -> Iterator[None]:
    try:
        yield
    except LookupError:  # deleted at this moment
        raise unknown("client", client_id) from None


def view(client: Client) -> dict[str, Any]:
    """Return a client as commands print it, without its secret."""
    logo = stored_clients.logo_digest(client.client_id)
    return {
        "client_id": client.client_id,
        "client_id_issued_at": clock.timestamp(client.created_at),
        **client.client_metadata,
        **({"registration": client.registration} if client.is_agent else {}),
        **({"logo_uri": urls.client_logo(context.settings().base_url, logo)} if logo else {}),
        **{field.name: getattr(client, field.name) for field in client_fields.COLUMNS},
        "disabled": client.disabled_at is not None,
    }


def _grant(grant: Grant, device: str | None) -> dict[str, Any]:
    return {
        "user": grant.user.email,
        "scope": grant.scope,
        "sid": grant.sid,
        "device": device,
        "since": iso(grant.created_at),
    }


def show_client(client: Client, as_json: bool) -> None:
    fields = view(client)
    if as_json:
        print_json(fields)
    else:
        fields["client_id_issued_at"] = client.created_at
        claims = ("client_name",) if client.is_agent else ()
        print_record(
            (f"{name} (not verified)" if name in claims else name, value)
            for name, value in fields.items()
        )


def with_secret(client: Client, secret: str) -> dict[str, Any]:
    """Return a client with its secret, if it has one (RFC 7591 §3.2.1)."""
    issued = clients.issued(client, secret) if client.has_secret else {}
    return {"client_id": client.client_id, **issued, **view(client)}


def forward_auth_url(client: Client) -> str:
    """Return the URL that the proxy in front of a client asks."""
    return f"{context.settings().base_url}{urls.FORWARD_AUTH}/{client.client_id}"


def show_secret(client: Client, secret: str, as_json: bool) -> None:
    """Print the secret of a client, and the server's addresses."""
    if as_json:
        print_json(with_secret(client, secret))
        return
    issued = [("client_secret", secret)] if client.has_secret else []
    issuer = context.settings().issuer_of(client)
    if client.is_saml:
        base = context.settings().base_url
        print_record([
            ("client_id", client.client_id),
            ("entity ID", client.entity_id),
            ("our entity ID and metadata", base + urls.SAML_METADATA),
            ("single sign-on", base + urls.SAML_SIGN_ON),
            ("single logout", base + urls.SAML_LOGOUT),
        ])  # fmt: skip
        print_line("It speaks SAML: it has no secret. Give it the URL of our metadata.")
        return
    server = [("issuer", issuer), ("discovery", urls.discovery(issuer))]
    print_record([("client_id", client.client_id), *issued, *server])
    if client.proxy_urls:
        places = " and ".join(client.proxy_urls)
        print_line(f"The proxy in front of {places} asks: {forward_auth_url(client)}")
        print_line("For what it sends and does, see docs/how-to/forward-auth.md.")
    elif client.is_public:
        duty = " and has to use PKCE" if AUTHORIZATION_CODE in client.grant_types else ""
        print_line(f"It is public: it has no secret{duty}.")
    elif client.trust_issuer:
        print_line(f"It has no secret: JWTs of {client.trust_issuer} authenticate it.")
    elif not client.has_secret:
        print_line("It has no secret: it signs with its private key.")
    else:
        print_line("The secret is shown this once; keep it safe.")
