"""Groups: membership decides which clients a user may use."""

from collections.abc import Iterable

from sso.models import Client, User
from sso.services import revocation


def end_lost_access(people: Iterable[User], clients: Iterable[Client]) -> None:
    """End the grants of users at clients that are for groups which they are not in (any more)."""
    restricted = [client for client in clients if client.groups]
    for user in people:
        for client in restricted:
            if not set(client.groups) & set(user.groups):
                revocation.grants_of_user_and_client(user.id, client.client_id, "group_lost")
