"""Statements about hashes of client secrets that another server made.

The first time that a client uses its secret here, a digest takes the place of the hash, unless the
secret is so short that it could be guessed from a digest. The row stays, without the hash, so that
a later migration recognizes the secret.
"""

from collections.abc import Collection

from sqlalchemy import Connection, select, update

from sso.crypto import secrets
from sso.extensions import db
from sso.models import Client, ClientSecretHash


def add(client_id: str, hashed: str) -> None:
    """Store the hash of a secret, unless it is a digest. The client is stored already."""
    digest = secrets.digest_of_foreign_secret(hashed)
    if not secrets.is_foreign(digest):
        return
    db.session.flush()
    db.session.merge(ClientSecretHash(client_id=client_id, digest=digest, hash=hashed))


def hashes(connection: Connection, client_id: str, digests: Collection[str]) -> dict[str, str]:
    """Return the hashes that these digests stand for."""
    table = ClientSecretHash
    rows = connection.execute(
        select(table.digest, table.hash).where(
            table.client_id == client_id, table.digest.in_(digests)
        )
    )
    return {row.digest: row.hash for row in rows if row.hash}


def replace(connection: Connection, client_id: str, digest: str, secret: str) -> None:
    """Put the digest of a secret in the place of the hash that it matched, if it is long enough."""
    if len(secret) < secrets.SHORTEST:
        return
    new = secrets.digest(secret)
    for column in (Client.secret_digest, Client.previous_secret_digest):
        connection.execute(
            update(Client)
            .where(Client.client_id == client_id, column == digest)
            .values({column: new, Client.updated_at: Client.updated_at})
        )
    connection.execute(
        update(ClientSecretHash)
        .where(ClientSecretHash.client_id == client_id, ClientSecretHash.digest == digest)
        .values(hash="", replaced_by=new)
    )


def originals(client_ids: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the digests of hashes that were replaced, by client and by what replaced them."""
    table = ClientSecretHash
    rows = db.session.execute(
        select(table.client_id, table.replaced_by, table.digest).where(
            table.client_id.in_(client_ids), table.replaced_by.is_not(None)
        )
    )
    return {(row.client_id, row.replaced_by): row.digest for row in rows}
