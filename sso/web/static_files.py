"""Static files: read and compressed once, at URLs that change with their content.

Browsers may cache a URL with the current version for a year (RFC 8246), and any other one for an
hour. Pages are not compressed: they hold CSRF tokens.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from flask import Flask, Response, abort, request

from sso.config.settings import Settings

FOLDER = Path(__file__).resolve().parents[1] / "static"
_YEAR = "public, max-age=31536000, immutable"
_HOUR = "public, max-age=3600"


@dataclass(frozen=True)
class Asset:
    """One file: its bytes as they are and compressed, and the version in its URL."""

    plain: bytes
    gzipped: bytes
    version: str
    mimetype: str


def init_app(app: Flask) -> None:
    """Serve the files; `asset(filename)` in a template is a URL with the version."""
    settings: Settings = app.extensions["sso.settings"]
    path = f"{settings.base_path}/static/"
    assets = {file.name: _read(file) for file in FOLDER.iterdir()}
    addresses = {name: f"{path}{name}?v={asset.version}" for name, asset in assets.items()}
    app.jinja_env.globals["asset"] = addresses.__getitem__

    def static(filename: str) -> Response:
        if filename not in assets:
            abort(404)
        return _answer(assets[filename])

    app.add_url_rule(f"{path}<filename>", "static", static)


def _read(file: Path) -> Asset:
    plain = file.read_bytes()
    version = hashlib.sha256(plain).hexdigest()[:12]
    mimetype = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return Asset(plain, gzip.compress(plain, mtime=0), version, mimetype)


def _answer(asset: Asset) -> Response:
    gzipped = request.accept_encodings["gzip"] > 0 and len(asset.gzipped) < len(asset.plain)
    response = Response(asset.gzipped if gzipped else asset.plain, mimetype=asset.mimetype)
    response.headers["Vary"] = "Accept-Encoding"
    if gzipped:
        response.headers["Content-Encoding"] = "gzip"
    response.set_etag(asset.version + ("-gzip" if gzipped else ""))
    fresh = request.args.get("v") == asset.version
    response.headers["Cache-Control"] = _YEAR if fresh else _HOUR
    response.make_conditional(request)
    return response
