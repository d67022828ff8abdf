"""Whether the database is encrypted with the secret key of now; it reads every secret."""

from sso import context
from sso.checkup.finding import Findings, ok, warning, wrong
from sso.jobs import reencryption
from sso.process.program import COMMAND


def secret_key() -> Findings:
    """Everything is encrypted with the current secret key, and with it alone."""
    waiting = reencryption.waiting()
    has_previous = context.settings().secret_key_previous is not None
    if waiting:
        seen = f"still encrypted with another secret key: {', '.join(waiting)}"
        hint = f"run: {COMMAND} key reencrypt, with SSO_SECRET_KEY_PREVIOUS set"
        yield (warning if has_previous else wrong)("secret key", seen, hint)
    elif has_previous:
        seen = "nothing at rest needs SSO_SECRET_KEY_PREVIOUS any more"
        hint = "remove it: at once if it leaked, else once most browsers have come back"
        yield warning("secret key", seen, hint)
    else:
        yield ok("secret key", "everything is encrypted with SSO_SECRET_KEY")
