"""`flask client`: look after registered applications. `cli.connect` registers them.

Options that change a list are `--add-…`, `--remove-…` and `--set-…`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import click

from sso import audit, clock, context
from sso.cli.commands import Group, confirm, json_option, only, unknown, yes_option
from sso.cli.output import iso, print_changes, print_json, print_line, print_record, print_table
from sso.config import urls
from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.images import Image
from sso.crypto import client_jwt
from sso.crypto.keys import ALGORITHMS
from sso.extensions import db
from sso.models import Client, Grant
from sso.process.program import COMMAND
from sso.services import checks, clients, groups
from sso.services.changes import ListEdit
from sso.services.checks import ID_TOKEN_CLAIMS
from sso.services.clients import SWITCHES
from sso.store import clients as stored_clients
from sso.store import grants, outbox

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


@dataclass(frozen=True)
class ListOption:
    """A list that an update changes; `field` is what views and metadata call it."""

    field: str
    singular: str
    plural: str
    metavar: str
    may_be_empty: bool = True
    has_spaces: bool = False  # else one text may hold several values, with spaces between them
    former: tuple[str, ...] = ()  # options that once replaced the list without saying so

    def options(self) -> tuple[Decorator, ...]:
        add, remove, whole = self.names
        name = self.singular.replace("-uri", " URI").replace("logout-", "logout ")
        emptied = '; "" leaves none.' if self.may_be_empty else "."
        return (
            click.option(add, f"add_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Add a {name}. May be repeated."),
            click.option(remove, f"remove_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Remove a {name}. May be repeated."),
            click.option(whole, f"set_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Replace them all. May be repeated{emptied}"),
            *(self._refused(name) for name in self.former),
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, str, str]:
        return f"--add-{self.singular}", f"--remove-{self.singular}", f"--set-{self.plural}"

    def edit(self, options: dict[str, Any]) -> "ListEdit | None":
        """Take this list's options out. Raises `UsageError` if they contradict one another."""
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

    def _values(self, given: Sequence[str]) -> tuple[str, ...] | None:
        if not given:
            return None
        values = given if self.has_spaces else [word for text in given for word in text.split()]
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
    """A decorator that adds the options of these lists."""
    return lambda function: decorated(function, chain.from_iterable(one.options() for one in lists))


def decorated(function: Function, options: Iterable[Decorator]) -> Function:
    """The function with options, in the order in which help lists them."""
    for option in reversed(list(options)):
        function = option(function)
    return function


_OF_KEYS = click.Choice(client_jwt.ALGORITHMS)
_SHARED = (
    click.option("--name", "client_name", help="The name that users see."),
    click.option("--backchannel-logout-uri", metavar="URI",
                 help="URL that gets a logout token when a user signs out."),
    click.option("--home-url", metavar="URL",
                 help="URL that starts the application, linked from the account page."),
    click.option("--logo", metavar="FILE",
                 help="Its logo: PNG, JPEG, WebP or SVG, at most 64 kB."),
    click.option("--auth-method", "token_endpoint_auth_method", type=click.Choice(AUTH_METHODS),
                 help="How the application sends its secret, or that it signs with a key."),
    click.option("--id-token-alg", "id_token_signed_response_alg", type=click.Choice(ALGORITHMS),
                 help="Algorithm that signs its identity tokens."),
    click.option("--id-token-claims", type=click.Choice(ID_TOKEN_CLAIMS),
                 help="all: identity tokens have the claims of userinfo."),
    click.option("--profile", type=click.Choice(checks.PROFILES),
                 help="fapi2: FAPI 2.0 Security Profile. Needs --jwks or --jwks-uri."),
    click.option("--jwks", metavar="FILE", help="The application's public keys: a JWK set."),
    click.option("--jwks-uri", metavar="URL", help="URL of the application's public keys."),
    click.option("--auth-alg", "token_endpoint_auth_signing_alg",
                 type=_OF_KEYS, help=f"The one algorithm for {PRIVATE_KEY_JWT}."),
    click.option("--request-object-alg", "request_object_signing_alg",
                 type=_OF_KEYS, help="Algorithm that signs its request objects."),
    click.option("--response-alg", "authorization_signed_response_alg",
                 type=_OF_KEYS, help="Algorithm that signs answers for response_mode=jwt (JARM)."),
)  # fmt: skip

_SHORT = {
    "token_endpoint_auth_signing_alg": "auth-alg",
    "request_object_signing_alg": "request-object-alg",
    "authorization_signed_response_alg": "response-alg",
}
_REMOVABLE = ("backchannel_logout_uri", "home_url", "profile", *_SHORT)

_PRESET = (
    click.option("--preset", metavar="NAME",
                 help=f"A known application; see: {COMMAND} client presets. Other options add "
                      "to it or replace what it says."),
    click.option("--url", help="URL of the preset's application."),
    click.option("--option", "preset_options", multiple=True, metavar="NAME=VALUE",
                 help="An option of the preset. May be repeated."),
    click.option("--alternative", metavar="NAME",
                 help="Print one of several ways to set the application up."),
)  # fmt: skip

_CREATE = (
    click.option("--redirect-uri", "redirect_uris", multiple=True, metavar="URI",
                 help="A redirect URI, compared exactly. May be repeated."),
    click.option("--post-logout-redirect-uri", "post_logout_redirect_uris", multiple=True,
                 metavar="URI", help="Where the browser may go after sign-out. May be repeated."),
    click.option("--scope", help="The scopes that it can request, separated by spaces."),
    click.option("--group", "groups", multiple=True,
                 help="Only members of one of these groups can use it. May be repeated."),
    click.option("--public", is_flag=True,
                 help="It has no secret: a native, single-page or command-line application."),
    click.option("--first-party", is_flag=True, default=None,
                 help="Do not ask users for consent."),
    click.option("--require-pkce", is_flag=True, default=None,
                 help="Refuse requests without PKCE."),
    click.option("--require-mfa", is_flag=True, default=None,
                 help="Require a second factor."),
    click.option("--require-par", "require_pushed_authorization_requests", is_flag=True,
                 default=None, help="Refuse authorization requests that are not pushed."),
    click.option("--require-dpop", "dpop_bound_access_tokens", is_flag=True, default=None,
                 help="Refuse token requests without a DPoP proof."),
    click.option("--require-dpop-nonce", is_flag=True, default=None,
                 help="Refuse DPoP proofs without a nonce of this server."),
)  # fmt: skip

LISTS = (
    ListOption("redirect_uris", "redirect-uri", "redirect-uris", "URI", may_be_empty=False,
               former=("--redirect-uri",)),
    ListOption("post_logout_redirect_uris", "post-logout-redirect-uri",
               "post-logout-redirect-uris", "URI",
               former=("--post-logout-redirect-uri", "--no-post-logout-redirect-uris")),
    ListOption("scope", "scope", "scopes", "SCOPE", may_be_empty=False,
               former=("--scope",)),
    ListOption("groups", "group", "groups", "GROUP", has_spaces=True,
               former=("--group", "--no-groups")),
)  # fmt: skip

_UPDATE = (
    click.option("--no-backchannel-logout-uri", is_flag=True,
                 help="Remove the back-channel logout URI."),
    click.option("--no-home-url", is_flag=True, help="Remove the home URL."),
    click.option("--remove-logo", is_flag=True, help="Remove the logo."),
    click.option("--first-party/--no-first-party", default=None,
                 help="Whether users are not asked for consent."),
    click.option("--require-pkce/--no-require-pkce", default=None,
                 help="Whether requests without PKCE are refused."),
    click.option("--require-mfa/--no-require-mfa", default=None,
                 help="Whether a second factor is required."),
    click.option("--require-par/--no-require-par", "require_pushed_authorization_requests",
                 default=None, help="Whether authorization requests have to be pushed."),
    click.option("--require-dpop/--no-require-dpop", "dpop_bound_access_tokens", default=None,
                 help="Whether token requests need a DPoP proof."),
    click.option("--require-dpop-nonce/--no-require-dpop-nonce", default=None,
                 help="Whether DPoP proofs need a nonce of this server."),
    click.option("--no-profile", is_flag=True, help="Remove the profile; the rest stays."),
    click.option("--no-auth-alg", "no_token_endpoint_auth_signing_alg", is_flag=True,
                 help=f"Allow every algorithm for {PRIVATE_KEY_JWT}."),
    click.option("--no-request-object-alg", "no_request_object_signing_alg", is_flag=True,
                 help="Refuse request objects."),
    click.option("--no-response-alg", "no_authorization_signed_response_alg", is_flag=True,
                 help="Do not sign authorization responses."),
)  # fmt: skip


def create_options(function: Function) -> Function:
    return decorated(function, (*_PRESET, *_SHARED, *_CREATE))


def update_options(function: Function) -> Function:
    return with_options(*LISTS)(decorated(function, (*_SHARED, *_UPDATE)))


def switches_given(options: dict[str, Any]) -> dict[str, bool]:
    """Take the switches that were given out of the options."""
    found = {name: options.pop(name) for name in SWITCHES}
    return {name: value for name, value in found.items() if value is not None}


def metadata_given(options: dict[str, Any]) -> dict[str, Any]:
    """The single values that were given. Raises `UsageError` and `Invalid`."""
    removed = {name: None for name in _REMOVABLE if options.pop(f"no_{name}", False)}
    if options.pop("public", False):
        if options["token_endpoint_auth_method"]:
            raise click.UsageError("--public contradicts --auth-method: there is no secret.")
        options["token_endpoint_auth_method"] = NO_AUTH_METHOD
    if path := options.pop("jwks"):
        options["jwks"] = checks.jwks(Path(path))
    found = {name: value for name, value in options.items() if value not in (None, ())}
    for name in removed.keys() & found.keys():
        option = _SHORT.get(name, name.replace("_", "-"))
        raise click.UsageError(f"--no-{option} contradicts --{option}.")
    return found | removed


def logo_given(options: dict[str, Any]) -> Image | None:
    """Take the logo out. Raises `UsageError` and `Invalid`."""
    path, is_removed = options.pop("logo"), options.pop("remove_logo", False)
    if is_removed and path is not None:
        raise click.UsageError("--remove-logo contradicts --logo.")
    return checks.logo(path or "") if is_removed or path is not None else None


def edits_given(options: dict[str, Any]) -> dict[str, ListEdit]:
    """Take the options that change lists out. Raises `UsageError` on contradictions."""
    return {one.field: edit for one in LISTS if (edit := one.edit(options))}


group = Group("client", help="Applications that users sign in to.")
client_argument = click.argument("client_id", metavar="ID")
_SHOWN_GRANTS = 50


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all applications."""
    found = stored_clients.every()
    if as_json:
        print_json([view(client) for client in found])
    else:
        print_table(
            ("ID", "NAME", "PUBLIC", "FIRST PARTY", "DISABLED", "REGISTERED"),
            [
                (
                    *(c.client_id, c.name, c.is_public, c.first_party),
                    *(c.disabled_at is not None, c.created_at),
                )
                for c in found
            ],
        )


@group.command("show")
@client_argument
@json_option
def show(client_id: str, as_json: bool) -> None:
    """Show an application's registration and its newest grants."""
    client = find_client(client_id)
    count, newest = grants.live_at(client.client_id, limit=_SHOWN_GRANTS)
    more = {
        "live_grants": count,
        "newest_grants": [_grant(grant) for grant in newest],
        "logout_tokens_waiting": outbox.logouts_waiting_for(client.client_id),
    }
    if as_json:
        print_json({**view(client), **more})
        return
    _show(client, as_json)
    more["live_grants"] = f"{count} or more" if count == grants.MOST_COUNTED else count
    print_record([(name, more[name]) for name in ("live_grants", "logout_tokens_waiting")])
    if newest:
        print_line()
        print_table(
            ("USER", "SCOPE", "SESSION", "SINCE"),
            [(g.user.email, g.scope, g.sid, g.created_at) for g in newest],
        )


@group.command("update")
@client_argument
@update_options
@json_option
def update(client_id: str, as_json: bool, **given: Any) -> None:
    """Change a registration, and print what changed."""
    switches, lists = switches_given(given), edits_given(given)
    logo, metadata = logo_given(given), metadata_given(given)
    if not (metadata or lists or switches or logo is not None):
        raise click.UsageError("There is nothing to change: give an option.")
    client_id = find_client(client_id).client_id
    with _known(client_id):
        client, outcome = clients.change(
            audit.operator(), client_id, metadata, lists=lists, switches=switches, logo=logo
        )
    db.session.commit()
    if as_json:
        print_json({**view(client), "changes": outcome.changes})
    else:
        _show(client, as_json)
    added = outcome.changes.get("groups", {}).get("added", [])
    notes = [*outcome.notes, *groups.without_members(added)]
    print_changes(outcome.changes, notes, as_json)


@group.command("rotate-secret")
@client_argument
@click.option(
    "--keep-old",
    type=click.IntRange(0, 24 * 365),
    default=0,
    metavar="HOURS",
    help="Hours for which the old secret stays valid; by default it ends at once.",
)
@json_option
def rotate_secret(client_id: str, keep_old: int, as_json: bool) -> None:
    """Give an application a new secret, shown once."""
    find_client(client_id, exactly=True)
    with _known(client_id):
        client, secret = clients.rotate_secret(
            audit.operator(), client_id, timedelta(hours=keep_old)
        )
    db.session.commit()
    show_secret(client, secret, as_json)
    if (until := client.previous_secret_expires_at) and not as_json:
        print_line(f"The old secret goes on until {until:%Y-%m-%d %H:%M} UTC.")


@group.command("disable")
@client_argument
@json_option
def disable(client_id: str, as_json: bool) -> None:
    """Disable an application; its tokens end at once."""
    find_client(client_id, exactly=True)
    with _known(client_id):
        client = clients.disable(audit.operator(), client_id)
    db.session.commit()
    _show(client, as_json)


@group.command("enable")
@client_argument
@json_option
def enable(client_id: str, as_json: bool) -> None:
    """Enable an application again; ended tokens stay ended."""
    client_id = find_client(client_id).client_id
    with _known(client_id):
        client = clients.enable(audit.operator(), client_id)
    db.session.commit()
    _show(client, as_json)


@group.command("delete")
@client_argument
@yes_option
@json_option
def delete(client_id: str, yes: bool, as_json: bool) -> None:
    """Delete an application with its tokens and consents."""
    client = find_client(client_id, exactly=True)
    confirm(f"Delete the application {client.name} ({client.client_id})?", yes)
    with _known(client_id):
        clients.delete(audit.operator(), client_id)
    db.session.commit()
    if as_json:
        print_json({"client_id": client_id, "deleted": True})
    else:
        print_line(f"Deleted {client_id}.")


def find_client(client_id: str, *, exactly: bool = False) -> Client:
    """The client that an operator means, by client ID, name, or how one of these begins.

    `exactly`: by client ID alone. Raises `Failure`.
    """
    if found := one_client(client_id, exactly=exactly):
        return found
    raise unknown("client", client_id)


def one_client(client_id: str, *, exactly: bool = False) -> Client | None:
    """As `find_client`, or `None` if there is none."""
    return only(
        stored_clients.matching(client_id),
        client_id,
        lambda client: f"{client.client_id} ({client.name})",
        "the client ID",
        exactly=exactly,
    )


@contextmanager
def _known(client_id: str) -> Iterator[None]:
    try:
        yield
    except LookupError:  # deleted at this moment
        raise unknown("client", client_id) from None


def view(client: Client) -> dict[str, Any]:
    """What commands show of a client, by RFC 7591 names: never a secret or its digest."""
    logo = stored_clients.logo_digest(client.client_id)
    return {
        "client_id": client.client_id,
        "client_id_issued_at": clock.timestamp(client.created_at),
        **client.client_metadata,
        **({"logo_uri": urls.client_logo(context.settings().base_url, logo)} if logo else {}),
        **{name: getattr(client, name) for name in SWITCHES},
        "disabled": client.disabled_at is not None,
    }


def _grant(grant: Grant) -> dict[str, Any]:
    return {
        "user": grant.user.email,
        "scope": grant.scope,
        "sid": grant.sid,
        "since": iso(grant.created_at),
    }


def _show(client: Client, as_json: bool) -> None:
    shown = view(client)
    if as_json:
        print_json(shown)
    else:
        shown["client_id_issued_at"] = client.created_at
        print_record(shown.items())


def with_secret(client: Client, secret: str) -> dict[str, Any]:
    """The answer to a registration (RFC 7591 §3.2.1); with a secret, where the client has one."""
    issued = {"client_secret": secret, "client_secret_expires_at": 0} if client.has_secret else {}
    return {"client_id": client.client_id, **issued, **view(client)}


def show_secret(client: Client, secret: str, as_json: bool) -> None:
    """The secret is shown this once."""
    if as_json:
        print_json(with_secret(client, secret))
        return
    issued = [("client_secret", secret)] if client.has_secret else []
    issuer = context.settings().issuer
    server = [("issuer", issuer), ("discovery", f"{issuer}/.well-known/openid-configuration")]
    print_record([("client_id", client.client_id), *issued, *server])
    if client.is_public:
        print_line("It is public: it has no secret and has to use PKCE.")
    elif not client.has_secret:
        print_line("It has no secret: it signs with its private key.")
    else:
        print_line("The secret is shown this once; keep it safe.")
