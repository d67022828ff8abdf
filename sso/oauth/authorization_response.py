"""The answer to the client through the browser: code or error, always with `iss` (RFC 9207 §2).

This is the only place that redirects to a client's address. Authlib's IssuerParameter covers
neither errors of the validation nor form_post, and re-encodes the registered query.
"""

from flask import render_template

from sso import context
from sso.config import urls
from sso.web import headers

AuthlibAnswer = tuple[int, str, list[tuple[str, str]]]


def to_client(
    redirect_uri: str, parameters: list[tuple[str, str]], state: str | None, response_mode: str
) -> AuthlibAnswer:
    """Send the browser to a *proven* address, by redirect or by a page that posts itself."""
    answer = list(parameters)
    if state:
        answer.append(("state", state))
    answer.append(("iss", context.settings().issuer))
    if response_mode == "form_post":
        # OAuth 2.0 Form Post Response Mode §2.
        headers.allow_own_script()
        body = render_template("form_post.html", action=redirect_uri, fields=answer)
        return 200, body, [("Content-Type", "text/html; charset=utf-8")]
    # 303: the browser never re-posts a form with a password to the client (RFC 9700 §4.12).
    return 303, "", [("Location", urls.add_parameters(redirect_uri, answer))]
