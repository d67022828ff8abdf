"""Clients as administrators look for them."""

from sqlalchemy import select

from sso.models import Client
from sso.store import clients
from sso.store.keyset import Order, Slice

NEWEST_FIRST = Order((Client.created_at, Client.client_id), is_descending=True)


def page(cursor: str | None) -> Slice[Client]:
    """One page of all clients. Raises `BadCursor`."""
    return NEWEST_FIRST.page(select(Client), cursor)


def having(text: str) -> list[Client]:
    """The clients with this text in their names, IDs or URLs, in any case, by name.

    It reads all of them; few servers have more than some hundreds.
    """
    wanted = text.casefold()

    def has(client: Client) -> bool:
        known = client.client_metadata
        urls = (*known.get("redirect_uris", ()), known.get("home_url") or "")
        return any(wanted in one.casefold() for one in (client.name, client.client_id, *urls))

    return sorted(
        filter(has, clients.every()), key=lambda one: (one.name.casefold(), one.client_id)
    )
