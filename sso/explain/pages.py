"""Checks of forms, paths and pages."""

from urllib.parse import urlsplit

from sso.audit.events import Event
from sso.explain.case import Case, Explanation, described
from sso.explain.requests import AT_THE_APPLICATION
from sso.i18n.message import Message


def form_without_token(case: Case) -> Explanation | None:
    """Explain a form whose CSRF token or cookie is missing or old."""
    if case.refusal.name != Event.CSRF_REFUSED:
        return None
    base = urlsplit(case.settings.base_url)
    if case.details.get("has_cookie"):
        return Explanation(
            Message(
                "The form is older than the present sign-in of its browser, or another site sent "
                "it."
            ),
            Message("Nothing, if it was left open in another tab: the page was shown again."),
        )
    if base.scheme == "https" and case["scheme"] == "http":
        return Explanation(
            Message("The page was opened by http, where browsers do not send the cookie."),
            Message(
                "Let the proxy redirect http to https. If people do use https, let it send "
                "X-Forwarded-Proto, and set SSO_TRUSTED_PROXIES to the number of proxies."
            ),
        )
    if case["host"]:
        return Explanation(
            Message(
                "The page was opened at %(host)s; SSO_BASE_URL is %(url)s.",
                host=case["host"],
                url=case.settings.base_url,
            ),
            Message("Redirect that name to the one of SSO_BASE_URL, or correct SSO_BASE_URL."),
        )
    if case["fetch_dest"] in ("iframe", "frame") or case["fetch_site"] == "cross-site":
        return Explanation(
            Message(
                "The page was used within a page of another site, where browsers do not send the "
                "cookie (SameSite=Lax)."
            ),
            Message("Let the application redirect the whole window instead of a frame."),
        )
    return Explanation(
        Message("The browser sent no cookie: it blocks them, or they were deleted meanwhile."),
        Message("Ask the person to allow cookies for this site."),
    )


def wrong_path(case: Case) -> Explanation | None:
    intended_path = case["meant"]
    if not intended_path:
        return None
    base = case.settings.base_url
    origin = base.removesuffix(case.settings.base_path)
    requested_origin = (
        f"{case['scheme'] or urlsplit(base).scheme}://{case['host'] or urlsplit(base).netloc}"
    )
    return Explanation(
        Message(
            "There is nothing at %(asked)s. It looks like %(meant)s.",
            asked=f"{requested_origin}{case['path']}",
            meant=f"{origin}{intended_path}",
        ),
        Message(
            "Set the issuer of the application to %(issuer)s; most then find all addresses by "
            "themselves.",
            issuer=case.settings.issuer,
        ),
    )


# Error pages without a further cause, by status.
_PAGES = {
    403: (
        Message("The page is for another user, or needs a sign-in first."),
        Message("No action is needed."),
    ),
    404: (
        Message("There is no page at this address."),
        Message("Correct the link that leads there."),
    ),
    410: (
        Message("The link from a mail was used, has expired, or is cut."),
        Message("Ask for a new link."),
    ),
    413: (Message("The request is longer than this server takes."), AT_THE_APPLICATION),
    429: (
        Message("There were too many attempts from this network or for this account."),
        Message("Wait."),
    ),
    500: (
        Message("The server failed."),
        Message("Look for the id in the log, and report what it says."),
    ),
    503: (
        Message("The server was overloaded, or could not reach its database."),
        Message("Look for the id in the log."),
    ),
}


def page(case: Case) -> Explanation | None:
    texts = _PAGES.get(int(case["status"] or 0))
    if texts is None and case["page"] and not case["error"]:
        return Explanation(
            Message("The page had been open for too long, or its address was cut."),
            Message("Ask the person to start again from the application."),
        )
    return Explanation(*texts) if texts and not case["reason"] else None


def anything_else(case: Case) -> Explanation:
    return Explanation(described(case) or case["page"] or case.refusal.name,
                       AT_THE_APPLICATION)  # fmt: skip
