"""The sheet of recovery codes: shown once, and saved as a file from the page that shows it.

The codes are stored as digests. So the page carries them for its download, signed for the session
in which they were created.
"""

from flask import make_response, redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import clock
from sso.endpoints import page
from sso.endpoints.forms import FactorsForm
from sso.i18n import times
from sso.mfa import passkeys, policy
from sso.store.sessions import CurrentSession

_LIFETIME = 15 * 60  # seconds; the page may be open for longer
_FILE_NAME = "recovery-codes.txt"


def show(current: CurrentSession, codes: list[str]) -> Response:
    """The page with the codes, this once."""
    next_url = page.admin_page() or url_for("pages.factors")
    if request.args.get("resume"):
        next_url = page.step("pages.authorize")
    return page.render(
        "recovery_codes.html",
        form=FactorsForm(),
        codes=codes,
        sheet=policy.sign_value(codes, _purpose(current)),
        next_url=next_url,
    )


@login_required
def download() -> Response:
    """The codes of the page that shows them, as a text file."""
    current = page.signed_in()
    found = policy.verify_value(FactorsForm().sheet.data, _purpose(current), _LIFETIME)
    if found is None:
        return redirect(url_for("pages.factors"), 303)
    lines = (
        gettext("Recovery codes for %(service)s", service=passkeys.rp_name()),
        current.user.email,
        gettext("Created on %(time)s", time=times.moment(clock.now())),
        "",
        *found[0],
        "",
        gettext("Each code replaces your second factor once. Keep this file in a safe place."),
        "",
    )
    response = make_response("\r\n".join(lines))
    response.mimetype = "text/plain"
    response.headers["Content-Disposition"] = f'attachment; filename="{_FILE_NAME}"'
    return response


def _purpose(current: CurrentSession) -> str:
    return f"recovery codes of {current.user.id} shown in {current.session.id}"
