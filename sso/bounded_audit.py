"""Audit events that strangers can cause as often as they like: only so many are recorded.

The counts are kept in this process, so that a refusal costs neither a statement nor a round trip.
"""

from flask import Flask, current_app, request

from sso import audit, networks
from sso.limit_storage import LimitStorage

HOUR = 3600
FROM_NETWORK, IN_ALL = 10, 200  # of one name within an hour
_EXTENSION = "sso.bounded_audit"


def init_app(app: Flask) -> None:
    app.extensions[_EXTENSION] = LimitStorage(None)


def event(name: str, **fields: object) -> None:
    """As `audit.event`, unless there were enough such events within the hour.

    The last one that is recorded says so.
    """
    storage: LimitStorage = current_app.extensions[_EXTENSION]
    here = storage.increase(f"{name}/{networks.of(request.remote_addr)}", HOUR)
    if here > FROM_NETWORK:
        return
    in_all = storage.increase(name, HOUR)
    if in_all > IN_ALL:
        return
    if here == FROM_NETWORK:
        fields["further"] = "from this network are not recorded for an hour"
    if in_all == IN_ALL:
        fields["further"] = "are not recorded for an hour"
    audit.event(name, **fields)
