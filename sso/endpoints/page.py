"""Shared by pages: rendering, the steps of a request, and redirects between them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from flask import Flask, g, make_response, redirect, render_template, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response
from wtforms import PasswordField

from sso import audit, context, database
from sso.audit.events import Event
from sso.config import urls
from sso.config.upstream.provider import Provider
from sso.crypto import password_strength
from sso.endpoints import authorize, browser_session
from sso.extensions import db
from sso.flow import decision, resources
from sso.i18n import languages
from sso.models import Api, User
from sso.oauth import document_clients
from sso.process import concurrency
from sso.ratelimit import limiting
from sso.services import authentication
from sso.store import clients
from sso.store.clients import RegisteredClient
from sso.store.sessions import CurrentSession
from sso.store.users import UserProfile
from sso.web import forms, headers, routing
from sso.web.pending_request import PendingRequest, sign
from sso.web.routing import login_manager

# Pages to return to after a fresh sign-in or a second factor.
_BACK = {
    "factors": "pages.factors",
    "factor_code": "pages.factor_code",
    "password": "pages.account",
    "delete": "pages.delete_account",
    "identities": "pages.identities",
    "email": "pages.account_email",
    "picture": "pages.account_picture",
    "new_email": "pages.verify_email",  # with the link's secret
    "admin": "admin.overview",  # or the page in `at`
}


class Answered(Exception):
    """End a view with this response; `abort` would encode its Location again."""

    def __init__(self, response: Response) -> None:
        self.response = response


def init_app(app: Flask) -> None:
    """Register the globals of templates, and the handler of `Answered`."""
    app.jinja_env.globals.update(
        step=step,
        password_rules=password_strength.RULES,
        provider_logo=provider_logo,
        picture_url=picture_url,
        terms_url=lambda: context.settings().terms_url,
    )
    app.register_error_handler(Answered, lambda answered: answered.response)


def api_scope_title(api: Api | resources.Api, name: str) -> str:
    """Return what a qualified name of an API's scope allows, in the language of the page."""
    scope = resources.scope_of(name)
    if not scope:
        return str(gettext("Use %(api)s", api=api.name))
    return resources.description(api, scope, languages.language())


def render(template: str, *, status: int = 200, wait: int = 0, **context: Any) -> Response:
    """Render a page. `wait`: seconds to wait after too many attempts.

    The page may run scripts if `passkey`, the request to the browser, is in the context, or if the
    form has a password field.
    """
    form = context.get("form", ())
    if context.get("passkey") or any(isinstance(field, PasswordField) for field in form):
        headers.allow_own_script()
    response = make_response(render_template(template, **context), 429 if wait else status)
    if wait:
        response.headers["Retry-After"] = str(wait)
    return response


def logo_url(digest: str | None) -> str | None:
    """Return the URL of a logo on pages."""
    return urls.client_logo(context.settings().base_path, digest) if digest else None


def provider_logo(provider: Provider) -> str | None:
    """Return the URL of an identity provider's logo."""
    return logo_url(provider.logo.digest) if provider.logo else None


def picture_url(user: User | UserProfile) -> str | None:
    """Return the URL of a person's uploaded picture on pages, which show no others."""
    name = urls.picture_name(user.claims.get("picture"))
    return urls.picture(context.settings().base_path, name) if name else None


def logo_of(client: RegisteredClient | None) -> str | None:
    """Return the URL of a client's logo, if it has one."""
    return logo_url(clients.logo_digest(client.client_id)) if client else None


def signed_in() -> CurrentSession:
    """Return the current session, on a page with `@login_required`."""
    current = browser_session.current_session()
    assert current
    return current


def pending_request() -> PendingRequest | None:
    """Return the authorization request of this step. Ends the view if it is invalid."""
    pending = authorize.read_waiting()
    if pending is not None:
        document_clients.examine(pending.parameters.get("client_id", ""))
    if "resume" in request.args and pending is None:
        raise Answered(authorize.stale())
    return pending


def validate(pending: PendingRequest) -> tuple[authorize.Validated, decision.Decision]:
    """Validate a pending request as if it arrived now, and decide the next step.

    Ends the view if it is invalid.
    """
    with database.reading() as connection:
        validated = authorize.validate(pending, connection)
        if isinstance(validated, Response):
            raise Answered(validated)
        return validated, authorize.decide(validated)


def after_sign_in(pending: PendingRequest | None, signed_in_at: datetime | None = None) -> Response:
    """Redirect after a sign-in, whose time is added to the pending request.

    The target is the dispatcher, the page that required the sign-in, or the account.
    """
    if signed_in_at and browser_session.pending_identity():
        noted = replace(pending, signed_in_at=signed_in_at) if pending else None
        more = {"resume": sign(noted)} if noted else {}
        return to_step("pages.connect", **more)
    back = _BACK.get(_args().get("back", ""))
    if back == _BACK["admin"]:
        # 307: the browser sends a waiting form to its page again, by the same method.
        return redirect(admin_page() or url_for(back), 307 if _has_unsent_form() else 303)
    carried: dict[str, Any] = {
        name: _args()[name] for name in ("token", "at") if back and _args().get(name)
    }
    if back == "pages.account":
        carried["open"] = _args()["back"]  # the form that waits
    if pending is None:
        return redirect(url_for(back or "pages.account", **carried), 303)
    if signed_in_at:
        pending = replace(pending, signed_in_at=signed_in_at)
    return authorize.to_step(back or "pages.authorize", pending, **carried)


def step(endpoint: str, **more: str) -> str:
    """Return the URL of another step, with the parameters of this one."""
    carried = {name: _args()[name] for name in ("back", "another") if name in _args()}
    return url_for(endpoint, **{**_carried(), **carried, **more})


def to_step(endpoint: str, **more: str) -> Response:
    """Redirect to another step."""
    return redirect(step(endpoint, **more), 303)


def done(endpoint: str, **result: str) -> Response:
    """Commit, and redirect to the page that shows the result in its URL."""
    db.session.commit()
    values: dict[str, Any] = {**result}
    return redirect(url_for(endpoint, **values), 303)


def done_text(texts: Mapping[str, str]) -> str | None:
    """Return the message of this page for the `done` in its URL."""
    return texts.get(request.args.get("done", ""))


def confirm_first(back: str = "factors") -> Response:
    """Redirect to the sign-in page, which leads back to a page of `_BACK`."""
    return redirect(url_for("pages.sign_in", back=back, **_carried()), 303)


@login_manager.unauthorized_handler
def _sign_in_first() -> Response:
    route = routing.current()
    if route and route.sign_in_back:
        return confirm_first(route.sign_in_back)
    return redirect(url_for("pages.sign_in"), 303)


def is_asked_back() -> bool:
    """Return whether a page of the account waits for a sign-in or a second factor."""
    return _args().get("back", "") in _BACK


def restore(parameters: Mapping[str, str]) -> None:
    """Continue a step whose URL had these parameters in this request."""
    g.sso_step_parameters = parameters


def _args() -> Mapping[str, str]:
    """Return the parameters of the step of this request."""
    parameters: Mapping[str, str] = g.get("sso_step_parameters", request.args)
    return parameters


def _carried() -> dict[str, Any]:
    names = ("resume", "token", "at")
    return {name: _args()[name] for name in names if _args().get(name)}


def admin_page() -> str | None:
    """Return the admin page in `at`; `None` if it is any other URL."""
    path, _, query = _args().get("at", "").partition("?")
    route = routing.at(path)
    if route is None or route.blueprint != routing.ADMIN or "GET" not in route.methods:
        return None
    query = urlencode(parse_qsl(query)[:20])
    return f"{path}?{query}" if query else path


def _has_unsent_form() -> bool:
    """Return whether the request carries a form for the admin page in `at`."""
    route = routing.at(_args().get("at", "").partition("?")[0])
    is_form = route is not None and route.blueprint == routing.ADMIN and "POST" in route.methods
    return is_form and forms.is_carried()


def try_once(account: str, rule: limiting.Guessing | None = None) -> tuple[limiting.Attempt, int]:
    """Begin an attempt; return it and the seconds to wait before it is allowed.

    `rule`: another one than the route's.
    """
    attempt, wait = limiting.ask(rule, account) if rule else routing.ask(account)
    if wait:
        db.session.commit()  # the audit events alone; no transaction waits
        concurrency.delay_refusal()
    return attempt, wait


def is_password_right(
    current: CurrentSession, field: PasswordField, message: str, failed: Event, reason: str
) -> bool:
    """Check the password of a signed-in user; set the error of the field if it is wrong. Commits.

    Nothing is locked: call `policy.lock` afterwards.
    """
    user = current.user
    attempt = routing.enter(user.email)
    db.session.commit()  # the transaction must not wait for the check
    typed = field.data or ""
    if authentication.verify_password(audit.USER, user, typed, str(user.id), failed, reason):
        attempt.passed()
        return True
    attempt.failed()
    field.errors = [message]
    return False
