"""How the service is doing."""

from werkzeug.wrappers import Response

from sso.endpoints.admin import pages
from sso.store import users


def overview() -> Response:
    """The overview of administration."""
    return pages.render("admin/overview.html", "overview", people=users.count())
