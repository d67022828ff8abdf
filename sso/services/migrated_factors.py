"""Second factors, links to providers and consents of people who come from another server.

They were proven there, and nobody is mailed. New people have no sessions here yet; what the first
factor of somebody else ends, `migrating.change_person` ends.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.imports.person import KEYS_OF_OTHERS, LINKS_OF_OTHERS, Factors
from sso.mfa import passkey_names, totp
from sso.models import Identity, Passkey, RecoveryCode, TotpSecret
from sso.store import clients, factors, grants, identities


def of_new(
    people: Iterable[Factors], client_ids: Collection[str]
) -> list[tuple[Factors, list[str]]]:
    """Return what `take` takes of each person who is not here yet, and what it leaves out because
    somebody here has it.
    """
    listed = list(people)
    registered = factors.registered(key.credential_id for f in listed for key in f.passkeys)
    linked = _linked(listed)
    fit = []
    for new in listed:
        keys = [key for key in new.passkeys if key.credential_id not in registered]
        links = [link for link in new.identities if link[2] not in linked[link[1]]]
        consents = {name: scopes for name, scopes in new.consents.items() if name in client_ids}
        lost = [KEYS_OF_OTHERS] if len(keys) < len(new.passkeys) else []
        lost += [LINKS_OF_OTHERS] if len(links) < len(new.identities) else []
        fit.append((replace(new, passkeys=keys, identities=links, consents=consents), lost))
    return fit


@audit.acting
def take(
    actor: Actor,
    by_user: Mapping[UUID, Factors],
    client_ids: Collection[str],
    taken: Mapping[UUID, Collection[str]] | None = None,
) -> None:
    """Store the factors of users who are here, unless they have them.

    `client_ids`: of the clients that come from there: consents are for these alone. `taken`: labels
    of what was taken before, and may have been removed here since. Raises `IntegrityError` if
    somebody registers one of them at this moment.
    """
    before = taken or {}
    rows: list[Passkey | TotpSecret | RecoveryCode] = []
    credential_ids = [key.credential_id for f in by_user.values() for key in f.passkeys]
    with_app, with_codes, registered = factors.present(by_user.keys(), credential_ids)
    for user_id, new in by_user.items():
        earlier_labels = before.get(user_id, ())
        if new.totp and user_id not in with_app and "totp" not in earlier_labels:
            rows.append(totp.taken_over(user_id, new.totp))
            audit.event(Event.FACTOR_ADDED, by=actor.by, user=user_id, kind="totp")
        for passkey in _passkeys(user_id, new, earlier_labels, registered):
            rows.append(passkey)
            audit.event(Event.FACTOR_ADDED, by=actor.by, user=user_id, kind="passkey")
        if user_id not in with_codes and "recovery codes" not in earlier_labels:
            codes = dict.fromkeys(new.recovery_codes)
            rows += [RecoveryCode(user_id=user_id, digest=code) for code in codes]
    factors.add_all(rows)
    _link(actor, by_user, before)
    _consent(by_user, client_ids, before)


def _passkeys(
    user_id: UUID, new: Factors, earlier_labels: Collection[str], registered: set[str]
) -> list[Passkey]:
    passkeys: list[Passkey] = []
    for key in new.passkeys:
        label = f"passkey {key.credential_id[:40]}"
        if key.credential_id in registered or label in earlier_labels:
            continue
        registered.add(key.credential_id)
        passkeys.append(
            Passkey(
                user_id=user_id,
                name=passkey_names.distinct(key.name, [other.name for other in passkeys]),
                credential_id=key.credential_id,
                public_key=key.public_key,
                transports=key.transports,
                sign_count=key.sign_count,
                user_handle=key.user_handle or None,
                # Not every server says; so nobody is told that it cannot be copied.
                is_synced=True,
                created_at=clock.now(),
            )
        )
    return passkeys


def _link(
    actor: Actor, by_user: Mapping[UUID, Factors], before: Mapping[UUID, Collection[str]]
) -> None:
    linked = _linked(by_user.values())
    for user_id, new in by_user.items():
        for provider, issuer, subject in new.identities:
            label = f"identity {issuer} {subject}"
            if subject in linked[issuer] or label in before.get(user_id, ()):
                continue
            linked[issuer].add(subject)
            identities.add(
                Identity(user_id=user_id, provider=provider, issuer=issuer, subject=subject)
            )
            audit.event(Event.IDENTITY_LINKED, by=actor.by, user=user_id, provider=provider)


def _linked(people: Iterable[Factors]) -> dict[str, set[str]]:
    """Return those of people's subjects at each issuer that are linked to somebody here."""
    subjects: dict[str, set[str]] = {}
    for new in people:
        for _, issuer, subject in new.identities:
            subjects.setdefault(issuer, set()).add(subject)
    return {issuer: identities.linked(issuer, some) for issuer, some in subjects.items()}


def _consent(
    by_user: Mapping[UUID, Factors],
    client_ids: Collection[str],
    before: Mapping[UUID, Collection[str]],
) -> None:
    # Not for a client of this server, or of another one, that has the same ID.
    named = {client_id for new in by_user.values() for client_id in new.consents} & {*client_ids}
    scopes = {row.client_id: row.scope.split() for row in clients.with_ids(named)}
    rows: list[tuple[UUID, str, str]] = []
    for user_id, new in by_user.items():
        for client_id, allowed in new.consents.items():
            if f"consent {client_id}" not in before.get(user_id, ()):
                possible: Sequence[str] = scopes.get(client_id, ())
                scope = " ".join(word for word in possible if word in ("openid", *allowed))
                rows += [(user_id, client_id, scope)] if scope else []
    grants.take_over_consents(rows)
