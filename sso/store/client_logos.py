"""Statements about the logos of applications."""

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, delete, insert, select

from sso import database
from sso.config.images import Image
from sso.extensions import db
from sso.models import Client, ClientLogo
from sso.models.clients import HAS_HOME_URL
from sso.store import prepared


def find(connection: Connection, digest: str) -> Image | None:
    """A logo by its digest."""
    wanted = select(ClientLogo.media_type, ClientLogo.data).where(ClientLogo.digest == digest)
    row = connection.execute(wanted.limit(1)).first()
    return Image(*row) if row else None


_LOGOS = prepared.table(ClientLogo)
_DIGEST = select(_LOGOS.c.digest).where(_LOGOS.c.client_id == bindparam("client_id"))


def digest_of(client_id: str) -> str | None:
    """The digest of a client's logo, if it has one."""
    with database.reading() as connection:
        row = prepared.first(connection, _DIGEST, {"client_id": client_id})
    return row["digest"] if row else None


def of_launchable(groups: Collection[str]) -> list[tuple[Client, str | None]]:
    """The applications that a user in these groups can start, by name; each with its digest."""
    found = db.session.execute(
        select(Client, ClientLogo.digest)
        .outerjoin(ClientLogo, ClientLogo.client_id == Client.client_id)
        .where(Client.disabled_at.is_(None), HAS_HOME_URL)
    )
    launchable = [(c, digest) for c, digest in found if c.home_url and c.admits(groups)]
    return sorted(launchable, key=lambda one: one[0].name.casefold())


def replace(client_id: str, logo: Image | None) -> None:
    """Give a client another logo; `NO_IMAGE` removes it. The caller has locked the client."""
    if logo is None:
        return
    db.session.execute(delete(ClientLogo).where(ClientLogo.client_id == client_id))
    if logo.data:
        values = {"media_type": logo.media_type, "data": logo.data, "digest": logo.digest}
        db.session.execute(insert(ClientLogo).values(client_id=client_id, **values))
