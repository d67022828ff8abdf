"""A form that was sent but not accepted, because the sender has to confirm who they are first.

The step-up page carries what was typed, and sends it back to the form's page. That page shows it
again, and does nothing: the person sends it once more. So nothing is signed or stored.
"""

import json
from urllib.parse import quote_plus

from flask import g, request
from werkzeug.datastructures import MultiDict

from sso.process.concurrency import MAX_BODY

FIELD = "unsent"
_ROOM = 4096  # bytes, for the other fields of the step-up page
_LEFT_OUT = ("csrf_token", FIELD)


def packed() -> str | None:
    """What this request has sent, for a hidden field; `None` if it is too long to be sent again."""
    typed = [(name, value) for name, value in request.form.items(multi=True)
             if name not in _LEFT_OUT]  # fmt: skip
    text = json.dumps(typed, ensure_ascii=False, separators=(",", ":"))
    return text if len(quote_plus(text)) <= MAX_BODY - _ROOM else None


def show_again() -> None:
    """Let the forms of this request be filled in, and do nothing."""
    carried = _unpacked(request.form[FIELD]) if FIELD in request.form else None
    g.sso_unsent_form = request.form if carried is None else carried


def fields() -> MultiDict[str, str] | None:
    """What the form is filled with, if it is only shown again."""
    found: MultiDict[str, str] | None = g.get("sso_unsent_form")
    return found


def _unpacked(text: str) -> MultiDict[str, str] | None:
    try:
        return MultiDict((str(name), str(value)) for name, value in json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
