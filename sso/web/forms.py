"""The forms of pages, and what happens to one that was sent too late.

An admin form may arrive when its sender has to confirm who they are first. The step-up page carries
what was typed, and sends it back to the form's page, which shows it again and does nothing. The
person sends it once more; so nothing is signed or stored.
"""

import json
from typing import Any
from urllib.parse import quote_plus

from flask import g, request
from flask_wtf import FlaskForm
from werkzeug.datastructures import MultiDict

from sso.process.concurrency import MAX_BODY

UNSENT = "unsent"  # the field that carries it
_ROOM = 4096  # bytes, for the other fields of the step-up page


class PageForm(FlaskForm):
    """A form that comes form-encoded; FlaskForm would take JSON, too.

    One that is shown again is filled in, but never valid.
    """

    def __init__(self, **options: Any) -> None:
        fields = g.get("sso_unsent_form") or request.form
        super().__init__(fields if request.method == "POST" else None, **options)

    def validate(self, extra_validators: Any = None) -> bool:
        return not is_shown_again() and bool(super().validate(extra_validators))


def packed() -> str:
    """What this request has sent, for a hidden field; empty if it is too long to be sent again."""
    fields = request.form.items(multi=True)
    typed = [field for field in fields if field[0] not in ("csrf_token", UNSENT)]
    text = json.dumps(typed, ensure_ascii=False, separators=(",", ":"))
    return text if len(quote_plus(text)) <= MAX_BODY - _ROOM else ""


def is_carried() -> bool:
    """Whether this request carries a form."""
    return request.method == "POST" and bool(request.form.get(UNSENT))


def show_again() -> None:
    """Let the forms of this request be filled in, and do nothing."""
    try:
        carried = json.loads(request.form.get(UNSENT, ""))
        g.sso_unsent_form = MultiDict((str(name), str(value)) for name, value in carried)
    except (ValueError, TypeError, RecursionError):
        g.sso_unsent_form = request.form


def is_shown_again() -> bool:
    return "sso_unsent_form" in g
