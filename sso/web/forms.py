"""The forms of pages, and forms that arrive when the user must first step up.

The step-up page carries the values of such an admin form, and sends them back to the form's page,
which shows them again without acting. The user submits the form once more; so nothing has to be
signed or stored.
"""

import json
from typing import Any
from urllib.parse import quote_plus

from flask import g, request
from flask_wtf import FlaskForm
from werkzeug.datastructures import MultiDict

from sso.process.concurrency import MAX_BODY

UNSENT = "unsent"  # the field that carries the values
_ROOM = 4096  # bytes, for the other fields of the step-up page


class PageForm(FlaskForm):
    """A form that accepts form-encoded bodies only; FlaskForm also accepts JSON.

    A form that is shown again is filled in, but never valid.
    """

    def __init__(self, **options: Any) -> None:
        fields = g.get("sso_unsent_form") or request.form
        super().__init__(fields if request.method == "POST" else None, **options)

    def validate(self, extra_validators: Any = None) -> bool:
        return not is_shown_again() and bool(super().validate(extra_validators))


def packed() -> str:
    """Return the values of this request for a hidden field; empty if they are too long."""
    fields = request.form.items(multi=True)
    typed = [field for field in fields if field[0] not in ("csrf_token", UNSENT)]
    text = json.dumps(typed, ensure_ascii=False, separators=(",", ":"))
    return text if len(quote_plus(text)) <= MAX_BODY - _ROOM else ""


def is_carried() -> bool:
    """Return whether this request carries the values of another form."""
    return request.method == "POST" and bool(request.form.get(UNSENT))


def show_again() -> None:
    """Fill in the forms of this request with the carried values, and make them invalid."""
    try:
        carried = json.loads(request.form.get(UNSENT, ""))
        g.sso_unsent_form = MultiDict((str(name), str(value)) for name, value in carried)
    except (ValueError, TypeError, RecursionError):
        g.sso_unsent_form = request.form


def is_shown_again() -> bool:
    return "sso_unsent_form" in g
