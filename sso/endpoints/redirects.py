"""Where a sign-in leads to: back to the dispatcher, to the page that asked for it, or home."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from flask import redirect, request, url_for
from werkzeug.wrappers import Response

from sso.endpoints import authorize
from sso.web.pending_request import PendingRequest

# Pages that ask for a fresh sign-in, or for a second factor, and may be come back to.
_BACK = {
    "factors": "pages.factors",
    "factor_code": "pages.factor_code",
    "password": "pages.account",
    "email": "pages.account_email",
    "new_email": "pages.verify_email",  # with the link's secret
}


def after_sign_in(waiting: PendingRequest | None, signed_in_at: datetime | None = None) -> Response:
    """Go on after a sign-in, of which the request that waited for it takes note."""
    back = _BACK.get(request.args.get("back", ""))
    token: dict[str, Any] = {}
    if back and request.args.get("token"):
        token["token"] = request.args["token"]
    if waiting is None:
        return redirect(url_for(back or "pages.account", **token), 303)
    if signed_in_at:
        waiting = replace(waiting, signed_in_at=signed_in_at)
    return authorize.to_step(back or "pages.authorize", waiting, **token)


def step(endpoint: str, **more: str) -> str:
    """The address of another step, with what this one carries along."""
    carried = {name: request.args[name] for name in ("back", "another") if name in request.args}
    return url_for(endpoint, **{**_carried(), **carried, **more})


def confirm_first(back: str = "factors") -> Response:
    """Sign in again, and come back to the page of the factors."""
    return redirect(url_for("pages.sign_in", back=back, **_carried()), 303)


def is_asked_back() -> bool:
    """Whether a page of the account waits for the person to confirm who they are."""
    return request.args.get("back", "") in _BACK


def _carried() -> dict[str, Any]:
    return {name: request.args[name] for name in ("resume", "token") if request.args.get(name)}
