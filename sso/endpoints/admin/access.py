"""Access control of admin pages, in one check before all of them.

Visitors who are not signed in are sent to the sign-in page, and return afterwards. Signed-in users
without the role get the same response as for an unknown page, at the same cost: an unknown page
also looks up the session, for the language of the account.
"""

from dataclasses import dataclass
from typing import cast

from flask import Flask, abort, g, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context, database
from sso.audit import Actor
from sso.config import urls
from sso.endpoints import browser_session, second_factor
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import OWNER, ROLES, Permission, Rights
from sso.i18n.languages import fault
from sso.mfa import policy
from sso.models import User
from sso.services import roles
from sso.store import factors, named_groups, sessions
from sso.store.sessions import CurrentSession
from sso.web import errors, routing
from sso.web.routing import Route

_SAFE = ("GET", "HEAD", "OPTIONS")
_LONGEST_WAY_BACK = 1000  # characters; it must fit into the URLs and cookies of a sign-in


@dataclass(frozen=True)
class Staff:
    """A person with permissions in the administration."""

    current_session: CurrentSession
    rights: Rights

    def may(self, permission: Permission) -> bool:
        """Return whether the visitor has a permission, and without limits."""
        return permission in self.rights.permissions

    def holds(self, permission: Permission) -> bool:
        """Return whether the visitor has a permission, if only for some groups or applications."""
        return self.rights.holds(permission)

    def manages(self, client_id: str) -> bool:
        """Return whether the visitor may see and change an application."""
        return Permission.APPLICATIONS in self.rights.over_client(client_id)

    def may_open(self, name: str) -> bool:
        """Return whether this visitor may open an admin page, given by its name."""
        return routing.may_open(name, self.rights)

    @property
    def user(self) -> User:
        return self.current_session.user

    @property
    def actor(self) -> Actor:
        """Return the actor for services."""
        user = self.user
        rights = self.rights
        return Actor(
            user.email,
            user_id=user.id,
            permissions=rights.permissions,
            limits=rights.limits,
            applications=rights.applications,
        )


def init_app(app: Flask) -> None:
    """Check every request for an admin page, even with a method that the page does not allow."""
    app.before_request(_check)
    app.register_error_handler(NotAllowed, _not_allowed)


def _not_allowed(error: NotAllowed) -> Response:
    db.session.rollback()
    return errors.page(
        fault(error.reason),
        status=403,
        title=gettext("This is not allowed"),
        link=(gettext("Back"), request.full_path.rstrip("?")),
    )


def staff() -> Staff:
    """Return the visitor of this admin page."""
    return cast(Staff, g.sso_admitted)


def _check() -> Response | None:
    route = routing.current()
    if route is None or route.blueprint != routing.ADMIN:
        return None
    current = browser_session.current_session()
    admitted = _admitted(route, current)
    is_page = request.method in (*route.methods, "HEAD")
    if current is None and is_page and _is_same_site():
        return _sign_in_first(route)
    if admitted is None or not _is_same_site():
        abort(404)
    if request.method not in _SAFE:
        # The user may have lost the role while the body was arriving.
        request.get_data(cache=True)
        db.session.rollback()
        admitted = _admitted(
            route, sessions.find_live_fresh(admitted.current_session.session.digest)
        )
        if admitted is None:
            abort(404)
    if step := _step_up(admitted.current_session, route):
        return step
    routing.admit(admitted)
    return None


def _admitted(route: Route, current: CurrentSession | None) -> Staff | None:
    if current is None:
        return None
    rights = roles.rights_of(current.user.groups)
    # Only for those who are admitted anyway, and on the pages that owners have.
    is_asked = Permission.GROUPS not in rights.permissions and (
        rights or Permission.OWN_GROUPS in route.needs
    )
    if is_asked and named_groups.owns_any(current.user.id):
        rights = rights.joined(Rights(ROLES[OWNER]))
    return Staff(current, rights) if routing.may_open(route.name, rights) else None


def _sign_in_first(route: Route) -> Response:
    """Redirect to the sign-in page, which leads back here. A submitted form is lost."""
    return redirect(url_for("pages.sign_in", back="admin", at=_way_back(route)), 303)


def _way_back(route: Route) -> str:
    """Return the URL to come back to: this page, if it can be opened with GET."""
    if "GET" not in route.methods:
        return url_for("admin.overview")
    url = request.full_path.rstrip("?")
    return url if len(url) <= _LONGEST_WAY_BACK else request.path


def _step_up(current: CurrentSession, route: Route) -> Response | None:
    """Redirect to set up or show a second factor if that is needed; it leads back here."""
    at = _way_back(route)
    if not factors.has_any(database.session_connection(), current.user.id):
        return redirect(url_for("pages.factors", at=at), 303)
    if policy.lacks_second_factor(current):
        if request.method == "POST":
            return second_factor.ask_before_form(current, at)
        return redirect(url_for("pages.second_factor", back="admin", at=at), 303)
    return None


def _is_same_site() -> bool:
    """Return whether the request comes from this site or from the user (Fetch Metadata).

    Another site may only link here. A form needs one of the two headers, which all browsers send.
    """
    headers = request.headers
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if request.method not in _SAFE:
        return site == "same-origin" if site else origin == urls.origin(context.settings().base_url)
    if site in (None, "same-origin", "none"):
        return True
    return (
        headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    )
