"""Static files: read and compressed once, at URLs that change with their content.

Browsers may cache a URL with the current version for a year (RFC 8246), and any other one for an
hour. Pages are not compressed: they hold CSRF tokens.

The operator's logo, accent color and style are among them (see `config.branding`).
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from flask import Flask, Response, abort, request

from sso.config import colors, images
from sso.config.images import Image
from sso.config.settings import Settings

FOLDER = Path(__file__).resolve().parents[1] / "static"
YEAR = "public, max-age=31536000, immutable"
_HOUR = "public, max-age=3600"
# For an image that is opened as a document: an SVG runs no script and loads nothing.
IMAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_STYLESHEET, _LOGO = "sso.css", "logo"


@dataclass(frozen=True)
class Asset:
    """One file: its bytes as they are and compressed, and the version in its URL."""

    plain: bytes
    gzipped: bytes
    version: str
    mimetype: str


@dataclass(frozen=True)
class Brand:
    """The operator's branding for templates; without `logo` they show the icon and the name."""

    name: str | None
    logo: str | None
    logo_has_dark_variant: bool
    links: list[tuple[str, str]]


def init_app(app: Flask) -> None:
    """Serve the files; `asset(filename)` in a template is a URL with the version."""
    settings: Settings = app.extensions["sso.settings"]
    path = f"{settings.base_path}/static/"
    assets = {file.name: _read(file) for file in FOLDER.iterdir()}
    logo = images.NO_IMAGE
    if settings.logo_file:
        logo = images.read(Path(settings.logo_file), images.MAX_LOGO)
        assets[_LOGO] = _asset(logo.data, logo.media_type)
    rules = colors.stylesheet(settings.accent_color) if settings.accent_color else ""
    if rules := rules + app.extensions["sso.overrides"].style:
        assets[_STYLESHEET] = _asset(assets[_STYLESHEET].plain + rules.encode(), "text/css")
    urls = {name: f"{path}{name}?v={asset.version}" for name, asset in assets.items()}
    app.jinja_env.globals["asset"] = urls.__getitem__
    app.jinja_env.globals["brand"] = Brand(
        settings.name, urls.get(_LOGO), logo.has_dark_variant, settings.footer_links
    )

    def static(filename: str) -> Response:
        if filename not in assets:
            abort(404)
        return _answer(assets[filename])

    app.add_url_rule(f"{path}<filename>", "static", static)


def _read(file: Path) -> Asset:
    mimetype = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return _asset(file.read_bytes(), mimetype)


def _asset(plain: bytes, mimetype: str) -> Asset:
    version = hashlib.sha256(plain).hexdigest()[:12]
    return Asset(plain, gzip.compress(plain, mtime=0), version, mimetype)


def _answer(asset: Asset) -> Response:
    gzipped = request.accept_encodings["gzip"] > 0 and len(asset.gzipped) < len(asset.plain)
    response = Response(asset.gzipped if gzipped else asset.plain, mimetype=asset.mimetype)
    response.headers["Vary"] = "Accept-Encoding"
    if gzipped:
        response.headers["Content-Encoding"] = "gzip"
    if asset.mimetype.startswith("image/"):
        response.headers["Content-Security-Policy"] = IMAGE_POLICY
    response.set_etag(asset.version + ("-gzip" if gzipped else ""))
    fresh = request.args.get("v") == asset.version
    response.headers["Cache-Control"] = YEAR if fresh else _HOUR
    response.make_conditional(request)
    return response


def of_picture(data: bytes, name: str) -> Response:
    """Return the response for the picture of a person, for a page of any application.

    Only the browser may keep it, for an hour: it ends with the account.
    """
    response = Response(data, mimetype=images.JPEG)
    response.headers["Content-Security-Policy"] = IMAGE_POLICY
    response.headers["Content-Disposition"] = 'inline; filename="picture.jpg"'
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    response.headers["Cache-Control"] = "private, max-age=3600"
    response.set_etag(name)
    response.make_conditional(request)
    return response


def of_image(image: Image) -> Response:
    """Return the response for an image at a URL that changes with its content."""
    response = Response(image.data, mimetype=image.media_type)
    response.headers["Content-Security-Policy"] = IMAGE_POLICY
    response.headers["Cache-Control"] = YEAR
    response.set_etag(image.digest)
    response.make_conditional(request)
    return response
