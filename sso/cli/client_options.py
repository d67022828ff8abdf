"""The options of `flask client create` and `update`, as RFC 7591 metadata."""

from collections.abc import Callable
from typing import Any

import click

from sso.cli.metadata import AUTH_METHODS, ID_TOKEN_CLAIMS
from sso.keys import ALGORITHMS

Function = Callable[..., Any]

_SHARED = (
    click.option("--name", help="The name that people see."),
    click.option("--redirect-uri", "redirect_uris", multiple=True, metavar="URI",
                 help="A callback address, compared exactly. May be repeated."),
    click.option("--post-logout-redirect-uri", "post_logout_redirect_uris", multiple=True,
                 metavar="URI", help="Where the browser may go after sign-out. May be repeated."),
    click.option("--backchannel-logout-uri", metavar="URI",
                 help="Where the server tells the application of a sign-out."),
    click.option("--scope", help="The scopes it may ask for, with spaces between them."),
    click.option("--auth-method", type=click.Choice(AUTH_METHODS),
                 help="How the client shows its secret."),
    click.option("--id-token-alg", type=click.Choice(ALGORITHMS),
                 help="The algorithm that signs its identity tokens."),
    click.option("--id-token-claims", type=click.Choice(ID_TOKEN_CLAIMS),
                 help="all: identity tokens carry what userinfo gives."),
    click.option("--group", "groups", multiple=True,
                 help="Only members of one of these may use it. May be repeated."),
)  # fmt: skip

_CREATE = (
    click.option("--first-party", is_flag=True, help="Users aren't asked for consent."),
    click.option("--require-pkce", is_flag=True, help="Refuse requests without PKCE."),
    click.option("--require-mfa", is_flag=True, help="Users have to show a second factor."),
)

_UPDATE = (
    click.option("--first-party/--no-first-party", default=None,
                 help="Whether users are spared the consent page."),
    click.option("--require-pkce/--no-require-pkce", default=None,
                 help="Whether requests without PKCE are refused."),
    click.option("--require-mfa/--no-require-mfa", default=None,
                 help="Whether users have to show a second factor."),
    click.option("--no-groups", is_flag=True, help="Everybody may use it."),
    click.option("--no-post-logout-redirect-uris", is_flag=True,
                 help="Take all post-logout addresses away."),
    click.option("--no-backchannel-logout-uri", is_flag=True,
                 help="Take the back-channel logout address away."),
)  # fmt: skip

_METADATA = {
    "name": "client_name",
    "auth_method": "token_endpoint_auth_method",
    "id_token_alg": "id_token_signed_response_alg",
}
_CLEARING: dict[str, tuple[str, list[str] | None]] = {
    "no_groups": ("groups", []),
    "no_post_logout_redirect_uris": ("post_logout_redirect_uris", []),
    "no_backchannel_logout_uri": ("backchannel_logout_uri", None),
}


def create_options(function: Function) -> Function:
    return _decorated(function, (*_SHARED, *_CREATE))


def update_options(function: Function) -> Function:
    return _decorated(function, (*_SHARED, *_UPDATE))


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the others keep the defaults or what is stored."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def changes(options: dict[str, Any]) -> dict[str, Any]:
    """The options of an update as changes of metadata. Raises `UsageError` on contradictions."""
    clearing = {name: target for name, target in _CLEARING.items() if options.pop(name)}
    found = {_METADATA.get(name, name): value for name, value in given(options).items()}
    for name, (target, empty) in clearing.items():
        if target in found:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} contradicts a value given for the same thing.")
        found[target] = empty
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def _decorated(function: Function, options: tuple[Callable[[Function], Function], ...]) -> Function:
    for option in reversed(options):
        function = option(function)
    return function
