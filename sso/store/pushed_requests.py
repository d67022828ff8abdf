"""Statements about pushed authorization requests; single use is decided here."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, insert, select, update

from sso.models import PushedRequest
from sso.store import prepared

LIFETIME = timedelta(seconds=60)  # until a browser brings the request URI (RFC 9126 §2.2)
WAITS = timedelta(hours=1)  # for the user, once a page of ours is shown

_PUSHED = prepared.table(PushedRequest)


@dataclass(frozen=True)
class Pushed:
    """A pushed request, as it is stored."""

    client_id: str
    parameters: str
    expires_at: datetime
    waits_until: datetime | None
    used_at: datetime | None

    def refusal(self, client_id: str, now: datetime, *, is_waiting: bool) -> str | None:
        """Why it cannot be used now; `is_waiting`: a browser brought it in time."""
        if self.client_id != client_id:
            return "issued to another client"
        if self.used_at:
            return "used before"
        if is_waiting:
            # The page may have been shown by another version, or after another redirect.
            until = self.waits_until or self.expires_at + LIFETIME
            return None if now < until else "waited too long"
        return None if now < self.expires_at else "expired"


_ADD = insert(_PUSHED)
_FIND = select(*prepared.columns(Pushed, _PUSHED)).where(_PUSHED.c.digest == bindparam("digest"))
_WAIT = (
    update(_PUSHED)
    .where(_PUSHED.c.digest == bindparam("pushed_digest"), _PUSHED.c.used_at.is_(None))
    .values(waits_until=bindparam("until"))
)
_USE = (
    update(_PUSHED)
    .where(_PUSHED.c.digest == bindparam("pushed_digest"), _PUSHED.c.used_at.is_(None))
    .values(used_at=bindparam("now"), parameters=bindparam("left"))
)


def add(
    connection: Connection, digest: str, client_id: str, parameters: str, now: datetime
) -> None:
    """Store a request."""
    values = {"digest": digest, "client_id": client_id, "parameters": parameters}
    times = {"expires_at": now + LIFETIME, "waits_until": None, "used_at": None}
    prepared.changed(connection, _ADD, {**values, **times})


def find(connection: Connection, digest: str) -> Pushed | None:
    """The request with this digest, whether it can be used or not."""
    row = prepared.first(connection, _FIND, {"digest": digest})
    return prepared.record(Pushed, row) if row else None


def wait(connection: Connection, digest: str, now: datetime) -> None:
    """Keep a request for the user, to whom a page is shown. As `use`, last in its transaction."""
    prepared.changed(connection, _WAIT, {"pushed_digest": digest, "until": now + WAITS})


def use(connection: Connection, digest: str, now: datetime, left: str) -> bool:
    """Use a request up; false if another answer was quicker. `left`: what replaces its parameters.

    The last statement of its transaction: deleting the client locks this row after all others.
    """
    return prepared.changed(connection, _USE, {"pushed_digest": digest, "now": now, "left": left})
