"""API tokens: create, revoke and accept them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import secrets
from sso.extensions import db
from sso.flow.refusals import Reason
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import ApiToken
from sso.services import checks, roles
from sso.services.checks import Invalid, Rule
from sso.services.roles import ADMIN
from sso.store import keys, users

SCIM_READ, SCIM_WRITE = "scim:read", "scim:write"
SCIM_INVITE, SCIM_PRIVILEGED = "scim:invite", "scim:privileged"
CLIENTS_READ, CLIENTS_WRITE = "clients:read", "clients:write"
APIS_READ, APIS_WRITE = "apis:read", "apis:write"
SCOPES: Mapping[str, str] = {
    SCIM_READ: N_("read users and groups"),
    SCIM_WRITE: N_("read, create, change and delete users and groups"),
    SCIM_INVITE: N_("mail an invitation to users that are created without a password"),
    SCIM_PRIVILEGED: N_("also change administrators and helpdesk members, and who they are"),
    CLIENTS_READ: N_("read applications"),
    CLIENTS_WRITE: N_("read, register, change and delete applications"),
    APIS_READ: N_("read APIs"),
    APIS_WRITE: N_("read, register, change and delete APIs"),
}
_IMPLIED = {SCIM_WRITE: SCIM_READ, CLIENTS_WRITE: CLIENTS_READ, APIS_WRITE: APIS_READ}
# These do nothing by themselves.
NEEDED = {SCIM_INVITE: SCIM_WRITE, SCIM_PRIVILEGED: SCIM_WRITE}
DEFAULT_LIFETIME, LONGEST_LIFETIME = timedelta(days=365), timedelta(days=5 * 366)
MOST = 200  # not revoked


class Refused(Exception):
    """The token is not accepted; `reason` is for the log, `token` is the token, if there is one."""

    def __init__(self, reason: Reason, token: ApiToken | None = None) -> None:
        super().__init__(reason)
        self.reason, self.token = reason, token


@audit.acting
def create(
    actor: Actor, name: str, scopes: Collection[str], lives: timedelta = DEFAULT_LIFETIME
) -> tuple[ApiToken, str]:
    """Create a token; return it and its secret, which is not stored.

    The token belongs to the administrator who creates it; a token made at the command line has no
    owner. Raises `Invalid` and `NotAllowed`.
    """
    unknown = sorted({*scopes} - SCOPES.keys())
    granted = [scope for scope in SCOPES if scope in scopes]
    errors = [checks.text_error(Message("the token's name"), name)]
    if unknown:
        errors.append(
            Message(
                "unknown scopes: %(unknown)s; known: %(known)s",
                unknown=", ".join(unknown)[:200],
                known=", ".join(SCOPES),
            )
        )
    elif not granted:
        errors.append(Message("there is no scope; known: %(known)s", known=", ".join(SCOPES)))
    errors += [
        Message("the scope %(scope)s needs %(needed)s", scope=scope, needed=needed)
        for scope, needed in NEEDED.items()
        if scope in granted and needed not in granted
    ]
    if not timedelta(0) < lives <= LONGEST_LIFETIME:
        errors.append(
            Message(
                "the token has to expire within %(days)d days from now",
                days=LONGEST_LIFETIME.days,
            )
        )
    live = [token for token in keys.every_api_token() if token.revoked_at is None]
    if len(live) >= MOST:
        errors.append(Message("there are %(most)d tokens already; revoke one first", most=MOST))
    if any(token.name == name for token in live):
        errors.append(
            Message(
                "there is already a token with the name %(name)s",
                name=name,
                code=Rule.ALREADY_EXISTS,
            )
        )
    if refusals := [error for error in errors if error]:
        raise Invalid(refusals)
    secret = secrets.make_secret(secrets.API_TOKEN)
    token = ApiToken(name=name, digest=secrets.digest(secret), scope=" ".join(granted))
    token.expires_at, token.owner_id = clock.now() + lives, actor.user_id
    keys.add_api_token(token)
    until = token.expires_at.isoformat()
    audit.event(
        Event.API_TOKEN_CREATED,
        api_token=token.id,
        name=name,
        scope=token.scope,
        until=until,
        owner=token.owner_id,
    )
    return token, secret


@audit.acting
def revoke(actor: Actor, token_id: UUID) -> ApiToken:
    """Revoke a token; its row stays for the audit trail.

    Raises `LookupError` and `NotAllowed`.
    """
    token = keys.lock_api_token(token_id)
    if token is None:
        raise LookupError(token_id)
    token.revoked_at = token.revoked_at or clock.now()
    db.session.flush()
    audit.event(Event.API_TOKEN_REVOKED, api_token=token.id, name=token.name)
    return token


@audit.acting
def end_of(actor: Actor, owner_ids: Collection[UUID], reason: str) -> None:
    """Revoke the tokens of users who are no longer administrators."""
    for token in keys.revoke_of(owner_ids) if owner_ids else ():
        audit.event(
            Event.API_TOKEN_REVOKED, api_token=token.id, name=token.name, owner=token.owner_id,
            reason=reason,
        )  # fmt: skip


def accept(secret: str, ip_address: str | None) -> ApiToken:
    """Return the token with this secret, and record its use. Raises `Refused`."""
    token = keys.find_api_token_by_digest(secrets.digest(secret))
    if token is None:
        raise Refused(Reason.UNKNOWN)
    if token.revoked_at is not None:
        raise Refused(Reason.REVOKED, token)
    if token.expires_at <= clock.now():
        raise Refused(Reason.EXPIRED, token)
    if token.owner_id is not None and not _is_administrator(token.owner_id):
        raise Refused(Reason.NO_ADMINISTRATOR, token)
    keys.note_api_token_use(token, ip_address)
    return token


def _is_administrator(user_id: UUID) -> bool:
    """Return whether a user is an administrator now; a setting or SQL may have changed that."""
    user = users.find(user_id)
    return user is not None and not user.is_disabled and roles.role_of(user.groups) == ADMIN


@dataclass(frozen=True)
class Service:
    """A client that acts with an access token of its own, in place of an API token."""

    client_id: str
    name: str
    scope: str


Program = ApiToken | Service


def actor_of(program: Program, by: str) -> Actor:
    """Return the owner of a token as the actor of a program's request."""
    if isinstance(program, Service):
        actor = Actor(f"service {program.name}", by, service=program.client_id)
    else:
        actor = Actor(f"API token {program.name}", by, str(program.id))
    return replace(
        actor,
        changes_staff=allows(program, SCIM_PRIVILEGED),
        reads_people=allows(program, SCIM_READ),
    )


def allows(token: Program, scope: str) -> bool:
    """Return whether a token has a scope, or one that includes it."""
    return any(scope in (name, _IMPLIED.get(name)) for name in token.scope.split())
