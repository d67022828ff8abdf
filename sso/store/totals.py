"""How many rows there are of each kind, counted up to a limit: the overview shows them."""

from typing import Any

from sqlalchemy import Select, func, select, union

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Group, Mail, Passkey, TotpSecret, User
from sso.store import users


def people(most: int) -> int:
    return _counted(select(User.email).order_by(User.email), most)


def active_people(days: int, most: int) -> int:
    active = select(User.last_active_at).where(users.is_active(days))
    return _counted(active.order_by(User.last_active_at), most)


def groups(most: int) -> int:
    return _counted(select(Group.name).order_by(Group.name), most)


def clients(most: int) -> int:
    return _counted(select(Client.client_id).order_by(Client.client_id), most)


def with_second_factor(most: int) -> int:
    """Count the users who have an authenticator app or a passkey."""
    owners = union(select(TotpSecret.user_id), select(Passkey.user_id)).subquery()
    return _counted(select(owners.c[0]), most)


def sessions(most: int) -> int:
    """Count the browsers that are signed in."""
    live = select(BrowserSession.expires_at).where(
        BrowserSession.expires_at > clock.now(), BrowserSession.ended_at.is_(None)
    )
    return _counted(live.order_by(BrowserSession.expires_at), most)


def mails(most: int) -> int:
    """Count the emails that are still to be sent."""
    return _counted(select(Mail.id).where(Mail.waits()), most)


def _counted(statement: Select[Any], most: int) -> int:
    """Return how many rows there are, or `most` plus one. The order makes an index serve."""
    limited = statement.limit(most + 1).subquery()
    return db.session.scalar(select(func.count()).select_from(limited)) or 0
