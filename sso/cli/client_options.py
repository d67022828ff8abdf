"""The options of `flask client create` and `update`, as RFC 7591 metadata."""

from typing import Any

import click

from sso.cli.lists import Function, ListEdit, ListOption, decorated, with_options
from sso.cli.metadata import AUTH_METHODS, ID_TOKEN_CLAIMS
from sso.crypto.keys import ALGORITHMS

_SHARED = (
    click.option("--name", help="The name that people see."),
    click.option("--backchannel-logout-uri", metavar="URI",
                 help="Where the server tells the application of a sign-out."),
    click.option("--auth-method", type=click.Choice(AUTH_METHODS),
                 help="How the client shows its secret."),
    click.option("--id-token-alg", type=click.Choice(ALGORITHMS),
                 help="The algorithm that signs its identity tokens."),
    click.option("--id-token-claims", type=click.Choice(ID_TOKEN_CLAIMS),
                 help="all: identity tokens carry what userinfo gives."),
)  # fmt: skip

_CREATE = (
    click.option(
        "--redirect-uri",
        "redirect_uris",
        multiple=True,
        metavar="URI",
        help="A callback address, compared exactly. May be repeated.",
    ),
    click.option(
        "--post-logout-redirect-uri",
        "post_logout_redirect_uris",
        multiple=True,
        metavar="URI",
        help="Where the browser may go after sign-out. May be repeated.",
    ),
    click.option("--scope", help="The scopes it may ask for, with spaces between them."),
    click.option(
        "--group",
        "groups",
        multiple=True,
        help="Only members of one of these may use it. May be repeated.",
    ),
    click.option("--first-party", is_flag=True, help="Users aren't asked for consent."),
    click.option("--require-pkce", is_flag=True, help="Refuse requests without PKCE."),
    click.option("--require-mfa", is_flag=True, help="Users have to show a second factor."),
)

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
                 help="Take the back-channel logout address away."),
    click.option("--first-party/--no-first-party", default=None,
                 help="Whether users are spared the consent page."),
    click.option("--require-pkce/--no-require-pkce", default=None,
                 help="Whether requests without PKCE are refused."),
    click.option("--require-mfa/--no-require-mfa", default=None,
                 help="Whether users have to show a second factor."),
)  # fmt: skip

_METADATA = {
    "name": "client_name",
    "auth_method": "token_endpoint_auth_method",
    "id_token_alg": "id_token_signed_response_alg",
}


def create_options(function: Function) -> Function:
    return decorated(function, (*_SHARED, *_CREATE))


def update_options(function: Function) -> Function:
    return with_options(*LISTS)(decorated(function, (*_SHARED, *_UPDATE)))


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the others keep the defaults or what is stored."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def metadata(options: dict[str, Any]) -> dict[str, Any]:
    """The single values of an update as changes of metadata. Raises `UsageError`."""
    cleared = options.pop("no_backchannel_logout_uri")
    found = {_METADATA.get(name, name): value for name, value in given(options).items()}
    if cleared and "backchannel_logout_uri" in found:
        raise click.UsageError("--no-backchannel-logout-uri contradicts --backchannel-logout-uri.")
    return found | ({"backchannel_logout_uri": None} if cleared else {})


def edits(options: dict[str, Any]) -> dict[str, ListEdit]:
    """Take the options that change lists out. Raises `UsageError` on contradictions."""
    found = {one.field: one.edit(options) for one in LISTS}
    return {name: edit for name, edit in found.items() if edit}
