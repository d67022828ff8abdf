"""What the demo shows besides its user: people, groups, applications, and a week of events.

All of it is the same each time, but for the times, the ids and the administrator's credentials.
"""

import json
import random
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import insert

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import passwords
from sso.extensions import db
from sso.mfa import totp
from sso.models import AuditEvent, User
from sso.services import accounts, clients, credentials
from sso.store import factors, named_groups, sessions, users

ADMINISTRATOR = "admin@example.com"
DOMAIN = "example.com"
_FIRST = (
    "Aiko", "Amir", "Beatriz", "Chidi", "Clara", "Elif", "Hanna", "Ivan", "Léa", "Mateo",
)  # fmt: skip
_LAST = (
    "Andersen", "Diallo", "Fischer", "García", "Haddad", "Kowalska", "Martin", "Okafor", "Rossi",
    "Tanaka",
)  # fmt: skip
EVERYONE = "everyone"
_TEAMS = ("engineering", "finance", "marketing", "operations", "sales", "support")
# Their names, and the groups that may use them.
APPLICATIONS = {
    "Wiki": (EVERYONE,),
    "Calendar": (EVERYONE,),
    "Code": ("engineering", "operations"),
    "Monitoring": ("engineering", "operations"),
    "Tickets": ("engineering", "sales", "support"),
    "Accounts": ("finance",),
}
_DAYS = 7
_BROWSERS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)"
    " Version/18.5 Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
    " Chrome/137.0.0.0 Safari/537.36",
)


@dataclass(frozen=True)
class Administrator:
    """How to sign in as the administrator; each recovery code works once."""

    email: str
    password: str
    setup_key: str
    recovery_codes: Sequence[str]


def prepare() -> Administrator:
    """Create what is missing, and new credentials of the administrator. The caller commits."""
    user = users.find_by_email(ADMINISTRATOR)
    password = "-".join(secrets.token_hex(2) for _ in range(4))
    if user is None:
        user = accounts.create(
            audit.operator(),
            email=ADMINISTRATOR,
            name="Alex Admin",
            password=password,
            email_verified=True,
            groups=[context.settings().admin_group],
        )
        people = _people()
        registered = {name: _register(name, groups) for name, groups in APPLICATIONS.items()}
        events = list(_week(people, registered))
        db.session.execute(insert(AuditEvent), events)
        _note_active(events)
    else:
        credentials.set_password(audit.operator(), user, password)
    key = totp.new_secret()
    factors.remove_totp_secret(user.id)
    # The code before the present one is used up, so that the present one works.
    totp.enrol(user.id, key, totp.code(key, -1))
    return Administrator(ADMINISTRATOR, password, key, totp.renew_recovery_codes(user.id))


def _people() -> list[User]:
    """Insert a hundred people, who share a password that nobody knows: hashing takes time."""
    draw, password_hash = random.Random(1), passwords.hash_password(secrets.token_urlsafe())  # noqa: S311 (no secret)
    names = [(first, last) for last in _LAST for first in _FIRST]
    people = []
    for number, (first, last) in enumerate(names):
        user = User(
            id=uuid4(),
            email=f"{_plain(first)}.{_plain(last)}@{DOMAIN}",
            email_verified=number % 17 != 3,
            name=f"{first} {last}",
            password_hash=None if number % 23 == 5 else password_hash,
            claims={"given_name": first, "family_name": last},
            attributes={},
            groups=sorted({EVERYONE, draw.choice(_TEAMS)}),
        )
        users.set_disabled(user, number % 31 == 8)
        people.append(user)
    named_groups.ensure([EVERYONE, *_TEAMS])
    users.insert_all(users.rows_of(people))
    return people


def _plain(name: str) -> str:
    return name.lower().translate(str.maketrans("éí", "ei"))


def _register(name: str, groups: Sequence[str]) -> str:
    home = f"https://{name.lower()}.{DOMAIN}/"
    metadata = {
        "client_name": name,
        "redirect_uris": [f"{home}callback"],
        "groups": list(groups),
        "home_url": home,
    }
    client, _ = clients.register(audit.operator(), metadata)
    return client.client_id


def _week(people: Sequence[User], applications: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the events of the last days, most of them in working hours."""
    draw, now = random.Random(2), clock.now()  # noqa: S311 (no secret)
    for back in range(_DAYS * 24, 0, -1):
        hour = now - timedelta(hours=back)
        is_busy = hour.weekday() < 5 and 7 <= hour.hour < 18
        for _ in range(draw.randrange(4, 12) if is_busy else draw.randrange(2)):
            at = hour + timedelta(seconds=draw.randrange(3600))
            yield from _visit(draw, min(at, now), draw.choice(people), applications)


def _note_active(events: Iterable[dict[str, Any]]) -> None:
    """Note the last sign-in of each person among these events, which are in order."""
    signed_in = [event for event in events if event["name"] == Event.SIGNED_IN]
    sessions.note_all_active({UUID(event["user_id"]): event["at"] for event in signed_in})


def _visit(
    draw: random.Random, at: datetime, user: User, applications: dict[str, str]
) -> Iterator[dict[str, object]]:
    """Yield the events of one person who signs in, perhaps after a mistake."""
    place = {"address": f"192.0.2.{draw.randrange(1, 250)}", "browser": draw.choice(_BROWSERS)}
    if draw.random() < 0.08:
        yield _row(at, Event.SIGN_IN_FAILED, user.id, place)
    if user.is_disabled or user.password_hash is None:
        return
    sid = str(UUID(int=draw.getrandbits(128), version=4))
    methods = "pwd otp mfa" if draw.random() < 0.3 else "pwd"
    at += timedelta(seconds=5)
    yield _row(at, Event.SIGNED_IN, user.id, place, amr=methods, sid=sid)
    names = [name for name, groups in APPLICATIONS.items() if set(groups) & set(user.groups)]
    for client_id in (applications[name] for name in draw.sample(names, min(2, len(names)))):
        at += timedelta(seconds=20)
        yield _row(at, Event.CODE_ISSUED, user.id, place, client_id, sid=sid)


def _row(
    at: datetime,
    event: Event,
    user_id: UUID,
    place: dict[str, str],
    client_id: str | None = None,
    **fields: str,
) -> dict[str, object]:
    return {
        "id": uuid4(), "at": at, "name": str(event), "user_id": str(user_id),
        "client_id": client_id, "fields": json.dumps(fields), **place,
    }  # fmt: skip
