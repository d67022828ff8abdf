"""Statements about the uploaded pictures of users."""

from uuid import UUID

from sqlalchemy import Connection, delete, insert, select

from sso.config import urls
from sso.extensions import db
from sso.models import User, UserPicture
from sso.store import users


def find(connection: Connection, name: str) -> bytes | None:
    """Return a picture by the name in its URL, of a user who is not disabled."""
    statement = (
        select(UserPicture.data)
        .join(User, User.id == UserPicture.user_id)
        .where(UserPicture.name == name, users.enabled())
    )
    data: bytes | None = connection.execute(statement).scalar()
    return data


def remove(user_id: UUID) -> None:
    """Delete a user's picture, if there is one. The caller has locked the user."""
    db.session.execute(delete(UserPicture).where(UserPicture.user_id == user_id))


def remove_former(user_id: UUID, url: object) -> None:
    """Delete a user's picture unless this URL is its own. The caller has locked the user."""
    db.session.execute(
        delete(UserPicture).where(
            UserPicture.user_id == user_id, UserPicture.name != (urls.picture_name(url) or "")
        )
    )


def replace(user_id: UUID, name: str, data: bytes) -> None:
    """Give a user another picture. The caller has locked the user."""
    remove(user_id)
    db.session.execute(insert(UserPicture).values(user_id=user_id, name=name, data=data))
