"""Registers clients and users: checks everything, builds the row. Knows nothing of click.

Nothing here commits. Every fault is found in one go, so that an operator mends them all at once.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.exc import IntegrityError

from sso.cli import claims as operator_claims
from sso.cli.metadata import faults_of, group_faults, text_fault
from sso.config import email_addresses
from sso.crypto import digests, passwords
from sso.errors import OperatorError
from sso.extensions import db
from sso.flow.scopes import DEFAULT_SCOPE
from sso.models import Client, User
from sso.services import notifications
from sso.store import clients, users


class RegistrationError(OperatorError, ValueError):
    """What was given can't be registered; `faults` has one line for each reason."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = list(faults)


def register_client(
    *,
    name: str,
    redirect_uris: Iterable[str],
    post_logout_redirect_uris: Iterable[str] = (),
    backchannel_logout_uri: str | None = None,
    scope: str = DEFAULT_SCOPE,
    first_party: bool = False,
    auth_method: str = "any",
    id_token_alg: str = "RS256",  # noqa: S107 (an algorithm's name)
    id_token_claims: str = "standard",  # noqa: S107 (nor a secret)
    require_pkce: bool = False,
    require_mfa: bool = False,
    groups: Iterable[str] = (),
    client_id: str | None = None,
    secret: str | None = None,
) -> tuple[Client, str]:
    """A new client and its secret, which is stored nowhere. Raises `RegistrationError`.

    A secret that is given has to be random: it is kept as a fast digest.
    """
    secret = secret or digests.make(digests.CLIENT_SECRET)
    client = Client(
        client_id=client_id or _client_id(),
        secret_digest=digests.digest(secret),
        first_party=first_party,
        require_pkce=require_pkce,
        require_mfa=require_mfa,
    )
    change_client(
        client,
        {
            "client_name": name,
            "redirect_uris": list(redirect_uris),
            "post_logout_redirect_uris": list(post_logout_redirect_uris),
            "backchannel_logout_uri": backchannel_logout_uri,
            "scope": scope,
            "token_endpoint_auth_method": auth_method,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "id_token_signed_response_alg": id_token_alg,
            "id_token_claims": id_token_claims,
            "groups": list(groups),
        },
    )
    clients.add(client)
    return client, secret


def change_client(client: Client, changes: Mapping[str, Any]) -> None:
    """Change metadata (RFC 7591 names); `None` takes a value away. Raises `RegistrationError`."""
    metadata = {
        name: _tidy(name, value)
        for name, value in {**client.client_metadata, **changes}.items()
        if value is not None
    }
    faults = faults_of(metadata, client.client_metadata.get("groups", ()))
    if faults:
        raise RegistrationError(faults)
    client.set_client_metadata(metadata)


def create_user(
    *,
    email: str,
    name: str,
    password: str | None,
    email_verified: bool = False,
    groups: Iterable[str] = (),
    claims: Mapping[str, Any] | None = None,
    user_id: UUID | None = None,
    invited: bool = False,
) -> User:
    """A new user, who is mailed a link; without a password nobody signs in as them yet.

    The link verifies the address, or sets the password of somebody who is invited. Raises
    `RegistrationError`.
    """
    user = User(id=user_id or uuid4(), email_verified=email_verified, claims={}, groups=[])
    about = (name, email)
    faults = []
    if password is not None and (fault := passwords.fault(password, about)):
        faults.append(fault)
    try:
        change_user(user, email=email, name=name, groups=groups, claims=claims)
    except RegistrationError as error:
        raise RegistrationError([*error.faults, *faults]) from None
    if faults:
        raise RegistrationError(faults)
    user.password_hash = None if password is None else passwords.hash_password(password)
    _flush(user)
    if invited:
        notifications.invited(user)
    elif not email_verified:
        notifications.verify(user)
    return user


def change_user(
    user: User,
    *,
    email: str | None = None,
    name: str | None = None,
    groups: Iterable[str] | None = None,
    claims: Mapping[str, Any] | None = None,
) -> None:
    """Change what is given; a claim of `None` is taken away. Raises `RegistrationError`."""
    faults = []
    address = user.email
    if email is not None:
        address, fault = _address(email)
        faults += [fault] if fault else _taken(address, user)
    if name is not None and (fault := text_fault("the name", name)):
        faults.append(fault)
    members = list(dict.fromkeys(groups)) if groups is not None else user.groups
    faults += group_faults(members, user.groups)
    faults += operator_claims.faults_of(claims or {})
    if faults:
        raise RegistrationError(faults)
    before, user.email, user.groups = user.email, address, members
    user.name = user.name if name is None else name
    merged = {**user.claims, **(claims or {})}
    user.claims = {key: value for key, value in merged.items() if value is not None}
    if user in db.session:
        _flush(user)
        if address != before:
            user.email_changed_at = None  # an operator answers for it
            notifications.email_changed(user, before)
            notifications.verify(user)


def set_password(user: User, password: str) -> None:
    """Give a user a new password. Raises `RegistrationError`."""
    if fault := passwords.fault(password, (user.name, user.email)):
        raise RegistrationError([fault])
    user.password_hash = passwords.hash_password(password)


def _client_id() -> str:
    """A random identifier; one that begins with a dash would look like an option to commands."""
    while (client_id := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return client_id


def _tidy(name: str, value: Any) -> Any:
    if name == "scope":
        return " ".join(dict.fromkeys(str(value).split()))
    return list(dict.fromkeys(value)) if isinstance(value, list) else value


def _address(email: str) -> tuple[str, str | None]:
    try:
        return email_addresses.normalized(email), None
    except ValueError as error:
        return "", f"the email address {email!r} is not valid: {error}"


def _taken(address: str, user: User) -> list[str]:
    other = users.find_by_email(address)
    if other is None or other.id == user.id:
        return []
    return [f"there is already a user with the email address {address}"]


def _flush(user: User) -> None:
    email = user.email
    try:
        users.add(user)
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        raise RegistrationError(
            [f"there is already a user with the email address {email}"]
        ) from None
