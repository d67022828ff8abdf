"""A directory: find a person, check the password, name the groups.

The service account searches, then the entry that was found is bound with the password. The subject
is an attribute that the directory never changes (objectGUID, entryUUID): a GUID in Active
Directory, text elsewhere. Groups include those that the person's groups are members of.
Distinguished names (RFC 4514) are normalized before they are compared.
"""

import logging
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from threading import BoundedSemaphore
from time import monotonic
from typing import TypeVar
from uuid import UUID

from sso.ldap import account_state, search_filters
from sso.ldap.connection import Connection, Refused, Server, Unavailable
from sso.ldap.messages import SUCCESS, Entry


def subject_of(attribute: str, entry: Entry) -> str:
    """Return the subject of an entry; empty if it has none, or one that cannot be stored."""
    value = next(iter(entry.values(attribute)), b"")
    if attribute.lower() == "objectguid":
        return str(UUID(bytes_le=value)) if len(value) == 16 else ""
    with suppress(UnicodeDecodeError):
        text = value.decode()
        return text if len(value) <= 255 and text.isprintable() else ""
    return ""


def stored_subject(attribute: str, subject: str) -> bytes:
    """Return the subject as the directory stores it."""
    return UUID(subject).bytes_le if attribute.lower() == "objectguid" else subject.encode()


_SPLIT = re.compile(r"((?:[^\\,;+]|\\.)*)([,;+]|\Z)", re.DOTALL)
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def is_name(text: str) -> bool:
    """Return whether it is a distinguished name rather than the short name of a group."""
    return "=" in text


def normal_name(name: str) -> str:
    """Normalize a name: without upper case, escapes and needless spaces."""
    parts = []
    for match in _SPLIT.finditer(name):
        attribute, value = _pair(match[1])
        parts.append(f"{attribute}={value!r}" if attribute else "")
        parts.append("+" if match[2] == "+" else ",")
    return "".join(parts).strip(",").casefold()


def first_value(name: str) -> str:
    """Return the first value of a distinguished name: usually the short name of its entry."""
    match = _SPLIT.match(name)
    return _pair(match[1])[1] if match else ""


def _pair(text: str) -> tuple[str, str]:
    attribute, _, value = text.partition("=")
    return attribute.strip().lower(), _plain(value)


def _plain(value: str) -> str:
    stripped = value.strip()
    if re.search(r"(?<!\\)(?:\\\\)*\\\Z", stripped):  # an escaped space at the end
        stripped += " "

    def one(match: re.Match[bytes]) -> bytes:
        escaped = match[1]
        return bytes.fromhex(escaped.decode()) if len(escaped) == 2 else escaped

    plain = _ESCAPED.sub(one, stripped.encode("utf-8", "surrogatepass"))
    return re.sub(r"\s+", " ", plain.decode(errors="replace"))


MOST_GROUPS = 1000  # groups of one person
_DEEPEST = 10  # groups in groups
_AT_ONCE = 50  # conditions in one search

# How groups name their members, and so what is searched for.
GROUP_NAMES, USER_NAMES = "dn", "user name"
# Who follows groups in groups: nobody, this client, or the server (Active Directory).
DIRECT, WALK, IN_CHAIN = "direct", "walk", "in chain"


@dataclass(frozen=True)
class Group:
    """A group by its distinguished name, and by its short one."""

    dn: str
    name: str


@dataclass(frozen=True, kw_only=True)
class GroupRules:
    """Where groups are. Without `base`, they are the values of the person's memberOf."""

    base: str = ""
    filter: bytes = b""
    name_attribute: str = "cn"
    member_attribute: str = "member"
    members: str = GROUP_NAMES
    nesting: str = DIRECT


def groups_of(rules: GroupRules, connection: Connection, entry: Entry, member: str) -> list[Group]:
    """Return the groups that have this entry as a `member`.

    All or none: a part of them could let a person in who must not be. Raises `Refused`.
    """
    if not rules.base:
        if any(name.startswith("memberof;range=") for name in entry.attributes):
            raise Refused("it gives only a part of memberOf; set group_base")
        dns = [value.decode(errors="replace") for value in entry.values("memberOf")]
        groups = {dn: Group(dn, first_value(dn)) for dn in dns}
    else:
        groups = _search(rules, connection, member)
    if len(groups) > MOST_GROUPS:
        raise Refused(f"{entry.dn} is in more than {MOST_GROUPS} groups; narrow group_filter")
    return list(groups.values())


def _search(rules: GroupRules, connection: Connection, member: str) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    members = [member] if member else []
    for depth in range(_DEEPEST if rules.nesting == WALK else 1):
        above: list[str] = []
        for start in range(0, len(members), _AT_ONCE):
            for group in _containing(rules, connection, members[start : start + _AT_ONCE], depth):
                if (key := normal_name(group.dn)) not in groups:
                    groups[key] = group
                    above.append(group.dn)
            if len(groups) > MOST_GROUPS:
                return groups
        members = above
    return groups


def _containing(
    rules: GroupRules, connection: Connection, members: list[str], depth: int
) -> list[Group]:
    # Groups are in groups by their distinguished names, whatever people are in them by.
    attribute = rules.member_attribute if depth == 0 or rules.members == GROUP_NAMES else "member"
    conditions = [
        search_filters.matching(attribute, search_filters.IN_CHAIN, member.encode())
        if rules.nesting == IN_CHAIN
        else search_filters.equal(attribute, member.encode())
        for member in members
    ]
    both = search_filters.every(rules.filter, search_filters.either(*conditions))
    groups = connection.search(rules.base, both, [rules.name_attribute], MOST_GROUPS + 1)
    if not groups.is_complete:
        raise Refused("a person is in more groups than it gives; narrow group_filter")
    return [Group(group.dn, group.text(rules.name_attribute)) for group in groups.entries]


logger = logging.getLogger("sso.ldap")

T = TypeVar("T")
UNKNOWN, AMBIGUOUS = "unknown", "ambiguous"
# Reading all certificates that a system trusts takes long; they change now and then.
_READ_AGAIN_SECONDS = 600.0
# A server that did not answer is asked last for so many seconds.
_AVOIDED_SECONDS = 30.0


class Busy(Unavailable):
    """Too many people wait for this directory already."""


@dataclass(frozen=True)
class Person:
    """What the directory says of a person. `barred`: why they may not sign in, or `None`.

    `has_own_email`: nobody else in the directory claims the address. `more`: all values of the
    further attributes that were asked for; "\\0" is one that is no text.
    """

    dn: str
    subject: str
    user_name: str
    email: str
    name: str
    barred: account_state.State | None
    must_change_password: bool
    has_own_email: bool = False
    groups: tuple[Group, ...] = ()
    more: Mapping[str, list[str]] = field(default_factory=dict)


class NotAllowed(Exception):
    """The person cannot sign in. `reason` is for the log.

    `is_password_right`: the directory has checked the password; the person may learn the reason.
    """

    def __init__(self, reason: str, *, is_password_right: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.is_password_right = reason, is_password_right


@dataclass(frozen=True, kw_only=True)
class Directory:
    """Where a directory is, and how its people and groups are found."""

    servers: tuple[Server, ...]
    base: str
    bind_dn: str = ""
    bind_password: str = field(default="", repr=False)
    user_filter: bytes
    login_attributes: tuple[str, ...]
    subject_attribute: str
    user_name_attribute: str
    email_attribute: str = "mail"
    name_attribute: str = "displayName"
    more_attributes: tuple[str, ...] = ()
    groups: GroupRules | None = None
    ca_file: str | None = None
    seconds: float = 5.0
    at_once: int = 8
    _slots: BoundedSemaphore = field(init=False, repr=False, compare=False)
    _avoided: dict[Server, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slots", BoundedSemaphore(self.at_once))
        object.__setattr__(self, "_avoided", {})

    def sign_in(
        self, login: str, password: str, now: datetime, before_bind: Callable[[str | None], None]
    ) -> Person:
        """Return the person with this name or email and this password.

        `before_bind` is called with the subject (`None`: unknown), and may raise: a few wrong
        passwords lock an account in most directories. Raises `NotAllowed`, `Unavailable` and
        `Refused`.
        """
        if not login.strip() or not password or "\0" in login + password:
            raise NotAllowed(UNKNOWN)

        def ask(connection: Connection) -> Person:
            entry = self._named(connection, login)
            if entry is None:
                before_bind(None)
                # One more question, as for a person who is known.
                connection.bind(f"cn=nobody,{self.base}", password)
                raise NotAllowed(UNKNOWN)
            person = self._person(entry, now)
            before_bind(person.subject)
            if refused := account_state.of_bind(connection.bind(entry.dn, password)):
                raise NotAllowed(refused.reason, is_password_right=refused.is_password_right)
            if person.barred or person.must_change_password:
                reason = person.barred or account_state.State.MUST_CHANGE
                raise NotAllowed(reason, is_password_right=True)
            self._bind(connection)
            person = replace(person, has_own_email=self._is_own_email(connection, person))
            return self._with_groups(connection, person, entry)

        return self._ask(ask)

    def find_person(self, login: str, now: datetime) -> Person | None:
        """Return the person who signs in with this name or email, as the service account sees them.

        Raises `NotAllowed` if several do, `Unavailable` and `Refused`.
        """

        def ask(connection: Connection) -> Person | None:
            entry = self._named(connection, login)
            return self._whole_person(connection, entry, now) if entry else None

        return self._ask(ask) if login.strip() and "\0" not in login else None

    def look_up(self, subjects: Iterable[str], now: datetime) -> dict[str, Person | None]:
        """Return the people with these subjects, over one connection; `None` for a deleted one.

        Who cannot be told is not in it. Raises `Unavailable` and `Refused`.
        """

        def ask(connection: Connection) -> dict[str, Person | None]:
            # If the base, the filter or a right of the service account were wrong, everybody
            # would seem to be gone.
            if not connection.search(self.base, self.user_filter, ["1.1"], 1).entries:
                raise Refused("it shows nobody at all")
            people: dict[str, Person | None] = {}
            for subject in subjects:
                try:
                    people[subject] = self._known(connection, subject, now)
                except (NotAllowed, Refused) as error:
                    logger.warning("a person cannot be looked up again: %s: %s", subject, error)
            return people

        return self._ask(ask)

    def examine(self, server: Server) -> tuple[datetime | None, int]:
        """Return when the certificate of a server ends, and how many people a search finds there.

        Raises `Unavailable` and `Refused`.
        """
        with Connection(server, self._tls(), self.seconds) as connection:
            self._bind(connection)
            answer = connection.search(self.base, self.user_filter, ["1.1"], 1)
            return connection.certificate_ends, len(answer.entries)

    def _ask(self, request: Callable[[Connection], T]) -> T:
        """Send a request to the first server that answers."""
        if not self._slots.acquire(blocking=False):
            raise Busy("too many people wait for it")
        try:
            trouble = Unavailable("no server is named")
            for server in sorted(self.servers, key=self._is_avoided):
                try:
                    with Connection(server, self._tls(), self.seconds) as connection:
                        self._bind(connection)
                        return request(connection)
                except Unavailable as error:
                    self._avoided[server] = monotonic() + _AVOIDED_SECONDS
                    trouble = error
            raise trouble
        finally:
            self._slots.release()

    def _is_avoided(self, server: Server) -> bool:
        return self._avoided.get(server, 0) > monotonic()

    def _tls(self) -> ssl.SSLContext:
        try:
            return _context(self.ca_file, int(monotonic() / _READ_AGAIN_SECONDS))
        except (OSError, ssl.SSLError) as error:
            raise Unavailable(f"the file of certificates cannot be read: {error}") from None

    def _bind(self, connection: Connection) -> None:
        if not self.bind_dn:
            return
        result = connection.bind(self.bind_dn, self.bind_password)
        if result.code != SUCCESS:
            raise Refused(f"the service account is refused: {result.code} {result.diagnostic}")

    def _known(self, connection: Connection, subject: str, now: datetime) -> Person | None:
        value = stored_subject(self.subject_attribute, subject)
        entry = self._one(connection, search_filters.equal(self.subject_attribute, value))
        return self._whole_person(connection, entry, now) if entry else None

    def _whole_person(self, connection: Connection, entry: Entry, now: datetime) -> Person:
        person = self._person(entry, now)
        if person.barred is None:
            person = replace(person, has_own_email=self._is_own_email(connection, person))
        return self._with_groups(connection, person, entry)

    def _named(self, connection: Connection, login: str) -> Entry | None:
        """Return the entry of the person who signs in with this name or email."""
        value = login.strip().encode("utf-8", "surrogatepass")
        by_name = [search_filters.equal(name, value) for name in self.login_attributes]
        return self._one(connection, search_filters.either(*by_name))

    def _one(self, connection: Connection, condition: bytes) -> Entry | None:
        attributes = (
            *(self.subject_attribute, self.user_name_attribute),
            *(self.email_attribute, self.name_attribute, "cn"),
            *(("memberOf",) if self.groups and not self.groups.base else ()),
            *account_state.ATTRIBUTES,
            *self.more_attributes,
        )
        both = search_filters.every(self.user_filter, condition)
        answer = connection.search(self.base, both, dict.fromkeys(attributes), 2)
        if len(answer.entries) > 1 or not answer.is_complete:
            raise NotAllowed(AMBIGUOUS)
        return answer.entries[0] if answer.entries else None

    def _person(self, entry: Entry, now: datetime) -> Person:
        subject = subject_of(self.subject_attribute, entry)
        if not subject or not entry.dn:
            raise Refused(f"an entry shows the service account no {self.subject_attribute}")
        return Person(
            dn=entry.dn,
            subject=subject,
            user_name=entry.text(self.user_name_attribute),
            email=entry.text(self.email_attribute),
            name=entry.text(self.name_attribute) or entry.text("cn"),
            barred=account_state.of(entry, now),
            must_change_password=account_state.must_change_password(entry, now),
            more={name: list(map(_text, entry.values(name))) for name in self.more_attributes},
        )

    def _is_own_email(self, connection: Connection, person: Person) -> bool:
        if not person.email:
            return False
        condition = search_filters.equal(self.email_attribute, person.email.encode())
        both = search_filters.every(self.user_filter, condition)
        answer = connection.search(self.base, both, ["1.1"], 2)
        return answer.is_complete and [match.dn for match in answer.entries] == [person.dn]

    def _with_groups(self, connection: Connection, person: Person, entry: Entry) -> Person:
        if self.groups is None:
            return person
        member = person.user_name if self.groups.members == USER_NAMES else person.dn
        return replace(person, groups=tuple(groups_of(self.groups, connection, entry, member)))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "\0"


@lru_cache(maxsize=8)
def _context(ca_file: str | None, _period: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)
