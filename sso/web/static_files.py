"""Static files: read and compressed once, at URLs that change with their content.

Browsers may cache a URL with the current version for a year (RFC 8246), and any other one for an
hour. Pages are not compressed: they hold CSRF tokens.

The operator's logo, accent color and style are among them (see `config.branding`). They change
while the server runs.
"""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from flask import Flask, Response, abort, current_app, request

from sso import context
from sso.config import colors, images
from sso.config.branding import Branding, BrandingSource
from sso.config.images import Image
from sso.config.settings import Settings

FOLDER = Path(__file__).resolve().parents[1] / "static"
YEAR = "public, max-age=31536000, immutable"
_HOUR = "public, max-age=3600"
# For an image that is opened as a document: an SVG runs no script and loads nothing.
IMAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_STYLESHEET, _LOGO = "sso.css", "logo"
_BRANDED = (_STYLESHEET, _LOGO)
_NOW = timedelta()


@dataclass(frozen=True)
class Asset:
    """One file: its bytes as they are and compressed, and the version in its URL."""

    plain: bytes
    gzipped: bytes
    version: str
    mimetype: str


@dataclass(frozen=True)
class Brand:
    """The branding for templates; without `logo` they show the icon and the name."""

    name: str | None
    logo: str | None
    logo_has_dark_variant: bool
    links: list[tuple[str, str]]

    @classmethod
    def of(cls, branding: Branding, logo: str | None) -> "Brand":
        """Return a branding with the URL of its logo."""
        is_dark = branding.logo is not None and branding.logo.has_dark_variant
        return cls(branding.name, logo, is_dark, branding.footer_links)


@dataclass(frozen=True)
class _Current:
    """The files that belong to a branding, with their URLs."""

    branding: Branding
    files: Mapping[str, Asset]
    urls: Mapping[str, str]
    brand: Brand


class StaticFiles:
    """The files of an application. Those that the branding changes are made when it changes."""

    def __init__(self, settings: Settings, source: BrandingSource, style: str) -> None:
        self._source, self._style = source, style
        self.path = f"{settings.base_path}/static/"
        self._files = {file.name: _read(file) for file in FOLDER.iterdir()}
        self._current = self._made(source.last(settings))

    def current(self) -> _Current:
        """Return the files for a page."""
        return self._for(self._source.current(context.settings()))

    def requested(self, name: str, version: str | None) -> Asset | None:
        """Return a file. Another version of what the branding changes is looked for in the database
        at once: another process may have just written its URL.
        """
        branding = self._source.last(context.settings())
        asset = self._for(branding).files.get(name)
        if name in _BRANDED and version and not (asset and asset.version == version):
            branding = self._source.current(context.settings(), oldest=_NOW)
            asset = self._for(branding).files.get(name)
        return asset

    def stylesheet(self, accent: str | None) -> bytes:
        """Return the style sheet with an accent color."""
        rules = (colors.stylesheet(accent) if accent else "") + self._style
        return self._files[_STYLESHEET].plain + rules.encode()

    def _for(self, branding: Branding) -> _Current:
        if self._current.branding is not branding:
            self._current = self._made(branding)
        return self._current

    def _made(self, branding: Branding) -> _Current:
        files = {**self._files}
        if branding.logo:
            files[_LOGO] = _asset(branding.logo.data, branding.logo.media_type)
        if branding.accent_color or self._style:
            files[_STYLESHEET] = _asset(self.stylesheet(branding.accent_color), "text/css")
        urls = {name: f"{self.path}{name}?v={asset.version}" for name, asset in files.items()}
        return _Current(branding, files, urls, Brand.of(branding, urls.get(_LOGO)))


def init_app(app: Flask) -> None:
    """Serve the files; `asset(filename)` in a template is a URL with the version."""
    static_files = StaticFiles(
        app.extensions["sso.settings"],
        app.extensions["sso.branding"],
        app.extensions["sso.overrides"].style,
    )
    app.extensions["sso.static_files"] = static_files
    # Macros that are imported without the context have this one.
    app.jinja_env.globals["asset"] = lambda name: static_files.current().urls[name]

    @app.context_processor
    def of_page() -> dict[str, Any]:  # once for a page, which asks ten times
        current = static_files.current()
        return {"asset": current.urls.__getitem__, "brand": current.brand}

    def static(filename: str) -> Response:
        asset = static_files.requested(filename, request.args.get("v"))
        return _answer(asset) if asset else abort(404)

    app.add_url_rule(f"{static_files.path}<filename>", "static", static)


def stylesheet(accent: str | None) -> bytes:
    """Return the style sheet of pages with an accent color, for a preview."""
    static_files: StaticFiles = current_app.extensions["sso.static_files"]
    return static_files.stylesheet(accent)


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
