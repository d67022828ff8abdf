"""Options of clients, and options that change a list: `--add-…`, `--remove-…`, `--set-…`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click

from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.images import Image
from sso.crypto import client_jwt
from sso.crypto.keys import ALGORITHMS
from sso.process.program import COMMAND
from sso.services import checks
from sso.services.changes import ListEdit
from sso.services.checks import ID_TOKEN_CLAIMS
from sso.services.clients import SWITCHES

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


def switches(options: dict[str, Any]) -> dict[str, bool]:
    """Take the switches that were given out of the options."""
    found = {name: options.pop(name) for name in SWITCHES}
    return {name: value for name, value in found.items() if value is not None}


def metadata(options: dict[str, Any]) -> dict[str, Any]:
    """The single values that were given. Raises `UsageError` and `RegistrationError`."""
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


def logo(options: dict[str, Any]) -> Image | None:
    """Take the logo out. Raises `UsageError` and `RegistrationError`."""
    path, is_removed = options.pop("logo"), options.pop("remove_logo", False)
    if is_removed and path is not None:
        raise click.UsageError("--remove-logo contradicts --logo.")
    return checks.logo(path or "") if is_removed or path is not None else None


def edits(options: dict[str, Any]) -> dict[str, ListEdit]:
    """Take the options that change lists out. Raises `UsageError` on contradictions."""
    return {one.field: edit for one in LISTS if (edit := one.edit(options))}
