"""`flask client preview`: the claims that an application would receive about a user."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

import click

from sso.cli.clients import client_argument, find_client, group
from sso.cli.commands import json_option
from sso.cli.output import print_json, print_line, print_record
from sso.cli.people import brief, find_user
from sso.flow import resources, scopes
from sso.flow.token_claims import Missing, Reason
from sso.models import User
from sso.process.program import COMMAND
from sso.services import agent_identity
from sso.services import preview as previews
from sso.services.preview import Assertion, OwnClaim, Preview, Stop, Token, Tokens
from sso.store.clients import RegisteredClient

_TIMES = ("exp", "iat", "auth_time", "updated_at")
_METHODS = {"pwd": "a password", "otp": "a one-time code", "hwk": "a passkey", "swk": "a passkey"}
_EXAMPLES = {
    "address": """'address={"locality": "Delft"}'""",
    "phone_number_verified": "phone_number_verified=true",
}


class Remark(NamedTuple):
    """A sentence about something that may be unexpected, and how to change it."""

    message: str
    hint: str


@group.command("preview")
@client_argument
@click.option(
    "--user", "identifier", metavar="WHO", required=True, help="The user who would sign in."
)
@click.option("--scope", help="The scopes of the request; by default all registered ones.")
@click.option(
    "--resource",
    "resource_names",
    metavar="URI",
    multiple=True,
    help="An API that the request is for. May be repeated.",
)
@json_option
def preview(
    client_id: str,
    identifier: str,
    scope: str | None,
    resource_names: Sequence[str],
    as_json: bool,
) -> None:
    """Show the claims that an application would receive about a user, and why others are missing.

    Nobody is signed in and nothing is stored. The tokens are not signed: they cannot be used.
    """
    client, user = find_client(client_id), find_user(identifier)
    resource = " ".join(resource_names) or None
    result = previews.make(client.client_id, user, scope, resource=resource)
    if as_json:
        print_json(_as_json(result, scope))
        return
    print_line(f"{agent_identity.described(result.client)} ({result.client.client_id})")
    print_line(f"for {user.name} ({user.email})")
    if result.stops:
        stops = [("", _of_stop(stop, result)) for stop in result.stops]
        _print_remarks("The sign-in fails, and the application gets nothing", stops)
    if result.tokens or result.assertion:
        _print_sign_in(result)
        if result.tokens:
            _print_tokens(result.tokens, result.client)
        if result.assertion:
            _print_assertion(result.assertion)
        _print_roles(result)
        _print_own_claims(result)
        missing = [(", ".join(names), remark) for names, remark in _grouped(result)]
        _print_remarks("What the application does not get, and why", missing)
        _print_remarks("Note", [("", remark) for remark in _notes(result)])


def _print_sign_in(preview: Preview) -> None:
    print_line()
    print_line(f"At the sign-in {preview.user.name}")
    methods = dict.fromkeys(_METHODS[method] for method in preview.amr if method in _METHODS)
    if preview.enrols:
        print_line("  has to set up two-step verification first: the application requires it")
    print_line(f"  signs in with {' and '.join(methods)}")
    names = ", ".join(map(_scope_name, preview.consent))
    print_line(f"  {f'is asked to allow: {names}' if names else 'is not asked to allow anything'}")
    print_line()
    granted = scopes.split(preview.scope)
    separator = ", " if any(map(resources.is_of_api, granted)) else " "
    print_line(f"Scope that the application gets: {separator.join(map(_scope_name, granted))}")


def _scope_name(name: str) -> str:
    """Return the name of a scope for people: `read at https://api.example.com`."""
    if not resources.is_of_api(name):
        return name
    return f"{resources.scope_of(name) or 'access'} at {resources.api_of(name)}"


def _print_tokens(tokens: Tokens, client: RegisteredClient) -> None:
    if tokens.userinfo is not None:
        _print_claims("Profile that the application can fetch (userinfo)", tokens.userinfo)
    if tokens.id_token:
        _print_claims("Identity token: tells the application who signed in", *tokens.id_token[::-1])
    for number, token in enumerate(tokens.access_tokens):
        audience = token.claims["aud"]
        is_for_api = audience in client.apis
        use = f"use {audience}" if is_for_api else "fetch the profile"
        condition = f", if it asks for resource={audience}" if number else ""
        _print_claims(f"Access token: lets the application {use}{condition}", *token[::-1])
    print_line()
    print_line(
        "These are examples without signature. Times, sid, jti and at_hash differ each time."
    )


def _print_assertion(assertion: Assertion) -> None:
    name_id = assertion.name_id or "random, made at the first sign-on"
    print_line()
    print_line("Assertion: tells the application who signed in")
    print_record([(f"  NameID ({assertion.kind})", name_id)])
    _print_claims("Attributes of the assertion", dict(assertion.attributes))


def _print_roles(preview: Preview) -> None:
    for roles in preview.roles:
        print_line()
        print_line(f"Roles at {roles.name}, and the groups that give them")
        rows = [(f"  {role}", ", ".join(groups)) for role, groups in roles.sources.items()]
        if rows:
            print_record(rows)
        else:
            print_line("  none: the user is in none of the groups")


def _print_own_claims(preview: Preview) -> None:
    if preview.own_claims:
        print_line()
        print_line("Own claims of the application, and where they come from")
        print_record((f"  {claim.name}", _origin_of(claim)) for claim in preview.own_claims)


def _origin_of(claim: OwnClaim) -> str:
    names = ", ".join(claim.names)
    origin = f"{claim.source} {names}".rstrip()
    if claim.set_by:
        origin += f" ({claim.set_by})"
    if claim.value is None:
        return f"no value: {origin} has none"
    if not claim.places:
        return f"left out, as it does not fit or is for another token: {origin}"
    places = ", ".join(place.replace("_", " ") for place in claim.places)
    return f"{_readable((claim.name, claim.value))[1]} by {origin}, in {places}"


def _print_claims(
    heading: str, claims: dict[str, Any], header: dict[str, Any] | None = None
) -> None:
    print_line()
    print_line(heading)
    rows = [("header", json.dumps(header))] if header else []
    print_record((f"  {name}", value) for name, value in [*rows, *map(_readable, claims.items())])


def _readable(claim: tuple[str, Any]) -> tuple[str, str]:
    name, value = claim
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name in _TIMES:
        text += f" ({datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    return name, text


def _print_remarks(heading: str, remarks: Iterable[tuple[str, Remark]]) -> None:
    listed = list(remarks)
    if not listed:
        return
    print_line()
    print_line(heading)
    for subject, remark in listed:
        if subject:
            print_line(f"  {subject}")
        indent = "    " if subject else "  "
        print_line(f"{indent}{remark.message}")
        print_line(f"{indent}to change it: {remark.hint}")


def _of_stop(stop: Stop, preview: Preview) -> Remark:
    client, user, quoted_email = preview.client, preview.user, shlex.quote(preview.user.email)
    name = agent_identity.described(client)
    match stop:
        case Stop.CLIENT_DISABLED:
            fix = f"{COMMAND} client enable {client.client_id}"
            return Remark(f"{name} is disabled.", fix)
        case Stop.USER_DISABLED:
            return Remark(f"{user.name} is disabled.", f"{COMMAND} user enable {quoted_email}")
        case Stop.CANNOT_SIGN_IN:
            message = f"{user.name} has neither a password nor a passkey."
            return Remark(message, f"{COMMAND} user set-password {quoted_email}")
        case Stop.NOT_A_MEMBER:
            return Remark(
                f"Only members of {' or '.join(client.groups)} may use {name}; "
                f"{user.name} is in {', '.join(user.groups) or 'no group'}.",
                f"{COMMAND} user update {quoted_email} --add-group {shlex.quote(client.groups[0])}",
            )
        case Stop.INVALID_SCOPE:
            message = "The application is registered for none of the scopes that are requested."
            return Remark(message, f"let it request some of: {client.scope}")
        case Stop.NOT_A_MEMBER_OF_API:
            groups = sorted(preview.api.groups) if preview.api else []
            return Remark(
                f"Only members of {' or '.join(groups)} may use the API; "
                f"{user.name} is in {', '.join(user.groups) or 'no group'}.",
                f"{COMMAND} user update {quoted_email} --add-group {shlex.quote(groups[0])}",
            )
        case Stop.INVALID_TARGET:
            return Remark(
                "The application may not use one of the APIs that the request names, or there are "
                "too many.",
                f"{COMMAND} client update {client.client_id} --add-api URI, for one of: "
                f"{COMMAND} api list",
            )
        case Stop.WITHOUT_PERSON:
            return Remark(
                "Nobody signs in to the application: it gets tokens for itself.",
                f"{COMMAND} client update {client.client_id} --device, if people use it on a "
                "device",
            )
        case Stop.NAME_ID_MISSING:
            return Remark(
                f"{user.name} has no value for the NameID, which is {client.saml_name_id}; only a "
                "verified email address counts, and the scope has to allow it.",
                f"{COMMAND} user update {quoted_email} --email-verified, or "
                f"{COMMAND} client update {client.client_id} --name-id persistent",
            )
        case Stop.ALL_WITHHELD:
            return Remark(f"{user.name} does not allow any requested scope.", _ask_again(user))


def _of_missing(missing: Missing, preview: Preview) -> Remark:
    client, user, scope = preview.client, preview.user, missing.scope
    match missing.reason:
        case Reason.NOT_REGISTERED:
            return Remark(
                f"The application is not registered for the scope {scope}.",
                f"{COMMAND} client update {client.client_id} --add-scope {scope}; "
                "then let the application request it",
            )
        case Reason.NOT_REQUESTED:
            message = f"The application does not request the scope {scope}."
            return Remark(message, f'let the application request scope="{preview.scope} {scope}"')
        case Reason.WITHHELD:
            return Remark(f"{user.name} does not allow the scope {scope}.", _ask_again(user))
        case Reason.LEFT_OUT_BY_PROFILE:
            return Remark(
                "The profile fapi2 leaves out what is not a standard claim.",
                "let the application read sub instead of id, and email_verified instead of "
                "emailVerified, or request them by name with the claims parameter",
            )
        case Reason.ONLY_AT_USERINFO:
            return Remark(
                "They are in the profile, but not in the identity token.",
                "if the application reads the identity token alone: "
                f"{COMMAND} client update {client.client_id} --id-token-claims all",
            )
        case Reason.NO_VALUE:
            update = f"{COMMAND} user update {shlex.quote(user.email)}"
            if scope == "groups":
                return Remark(f"{user.name} is in no group.", f"{update} --add-group GROUP")
            example = _EXAMPLES.get(missing.claim, f"{missing.claim}=VALUE")
            return Remark(f"{user.name} has no such value.", f"{update} --claim {example}")


def _ask_again(user: User) -> str:
    return (
        f"{user.name} removes the application's access on the account page, "
        "or the application sends prompt=consent; then the question comes again"
    )


def _grouped(preview: Preview) -> Iterator[tuple[list[str], Remark]]:
    """Yield the claims that are missing for the same reason."""

    def cause(missing: Missing) -> tuple[int, str]:
        by_scope = missing.reason not in (Reason.ONLY_AT_USERINFO, Reason.LEFT_OUT_BY_PROFILE)
        return list(Reason).index(missing.reason), missing.scope if by_scope else ""

    for _, same in groupby(sorted(preview.missing, key=cause), cause):
        claims = list(same)
        yield [missing.claim for missing in claims], _of_missing(claims[0], preview)


def _notes(preview: Preview) -> Iterator[Remark]:
    client, tokens = preview.client, preview.tokens
    if preview.dropped:
        yield Remark(
            f"Requested, but not granted: {preview.dropped}.",
            f"{COMMAND} client update {client.client_id} --add-scope SCOPE, if it is a scope here",
        )
    if tokens is None:
        return
    if tokens.id_token is None:
        yield Remark(
            "There is no identity token without the scope openid.",
            "let the application request openid",
        )
    if tokens.userinfo is None:
        yield Remark(
            "Userinfo refuses the access token: it needs openid, profile or email.",
            "let the application request one of them",
        )
    if (tokens.userinfo or {}).get("email_verified") is False:
        yield Remark(
            "The email address is not verified; many applications then refuse the sign-in.",
            f"{COMMAND} user update {shlex.quote(preview.user.email)} --email-verified, "
            "if you know that the address is theirs",
        )


def _as_json(preview: Preview, scope: str | None) -> dict[str, Any]:
    tokens = preview.tokens
    return {
        "client_id": preview.client.client_id,
        "client_name": preview.client.name,
        "user": brief(preview.user),
        "requested_scope": scope,
        "stops": [{"reason": stop, **_of_stop(stop, preview)._asdict()} for stop in preview.stops],
        "amr": list(preview.amr),
        "sets_up_second_factor": preview.enrols,
        "consent_asked": list(preview.consent),
        "scope": preview.scope,
        "dropped_scope": preview.dropped,
        "userinfo": tokens.userinfo if tokens else None,
        "id_token": _token(tokens.id_token) if tokens else None,
        "access_token": _token(tokens.access_token) if tokens else None,
        "access_tokens": [_token(token) for token in tokens.access_tokens] if tokens else [],
        "assertion": asdict(preview.assertion) if preview.assertion else None,
        "roles": {roles.audience: roles.sources for roles in preview.roles},
        "own_claims": [asdict(claim) for claim in preview.own_claims],
        "missing": [
            {
                "claim": missing.claim,
                "scope": missing.scope,
                "missing_in": list(missing.places),
                "reason": missing.reason,
                **_of_missing(missing, preview)._asdict(),
            }
            for missing in preview.missing
        ],
        "notes": [note._asdict() for note in _notes(preview)],
    }


def _token(token: Token | None) -> dict[str, Any] | None:
    return {"header": token.header, "payload": token.claims} if token else None
