"""Asks directories (LDAP) who somebody is, and whether they still are."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sso import clock
from sso.config.upstream.ldap import LdapProvider
from sso.ldap.account_state import State
from sso.ldap.connection import Refused, Unavailable
from sso.ldap.directory import NotAllowed, Person
from sso.upstream.identity import UpstreamIdentity, UpstreamUnavailable

TYPED_HERE = "pwd"  # in `amr`


def sign_in(
    provider: LdapProvider, login: str, password: str, before_bind: Callable[[str | None], None]
) -> UpstreamIdentity:
    """Return the person with this name and password. `before_bind`: see `Directory.sign_in`.

    Raises `NotAllowed` and `UpstreamUnavailable`.
    """
    with _asking():
        person = provider.client.sign_in(login, password, clock.now(), before_bind)
    return _identity(provider, person)


def look_up(
    provider: LdapProvider, subjects: Iterable[str]
) -> dict[str, UpstreamIdentity | NotAllowed]:
    """Return these people as the directory has them now. Raises `UpstreamUnavailable`."""
    with _asking():
        people = provider.client.look_up(subjects, clock.now())
    answers: dict[str, UpstreamIdentity | NotAllowed] = {}
    for subject, person in people.items():
        barred = State.REMOVED if person is None else person.barred
        if person is None or barred:
            answers[subject] = NotAllowed(barred or State.REMOVED)
        else:
            answers[subject] = _identity(provider, person)
    return answers


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (Unavailable, Refused) as error:
        raise UpstreamUnavailable(str(error)) from error


def attributes_of(provider: LdapProvider, person: Person) -> dict[str, list[str]] | None:
    """Return what the directory says for attributes here."""
    if not provider.attributes:
        return None
    return {name: person.more.get(theirs, []) for theirs, name in provider.attributes.items()}


def _identity(provider: LdapProvider, person: Person) -> UpstreamIdentity:
    return UpstreamIdentity(
        issuer=provider.issuer,
        subject=person.subject,
        email=person.email if person.email.isprintable() and person.email else None,
        email_verified=person.has_own_email,
        name=person.name or person.user_name,
        groups=provider.mapped(person.groups) if provider.groups else None,
        attributes=attributes_of(provider, person),
        amr=TYPED_HERE,
    )
