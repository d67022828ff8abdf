"""The logos of applications and of identity providers, on our own pages."""

from flask import abort, request
from werkzeug.wrappers import Response

from sso import context, database
from sso.store import clients
from sso.web import static_files


def client_logo() -> Response:
    """The logo of an application or a provider. Its URL changes with its content."""
    digest = request.args.get("v", "")
    if logo := context.upstreams().logo(digest):
        return static_files.of_image(logo)
    with database.connection() as connection:
        logo = clients.find_logo(connection, digest) if digest.isalnum() else None
    if logo is None:
        abort(404)
    return static_files.of_image(logo)
