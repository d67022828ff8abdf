"""Static files: read and compressed once, at addresses that change with what they hold.

Browsers may keep such an address for a year (RFC 8246); whoever asks without the version, or with
an old one, may keep the answer for an hour. Pages are not compressed: they hold CSRF tokens.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from flask import Flask, Response, abort, request

from sso.config.settings import Settings

FOLDER = Path(__file__).resolve().parents[1] / "static"
FOR_EVER = "public, max-age=31536000, immutable"
FOR_AN_HOUR = "public, max-age=3600"


@dataclass(frozen=True)
class Asset:
    """One file: its bytes as they are and compressed, and the version in its address."""

    plain: bytes
    packed: bytes
    version: str
    mimetype: str


def init_app(app: Flask) -> None:
    """Serve the files; `asset(filename)` in a template is an address with the version."""
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
    packed = request.accept_encodings["gzip"] > 0 and len(asset.packed) < len(asset.plain)
    response = Response(asset.packed if packed else asset.plain, mimetype=asset.mimetype)
    response.headers["Vary"] = "Accept-Encoding"
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    response.set_etag(asset.version + ("-gzip" if packed else ""))
    fresh = request.args.get("v") == asset.version
    response.headers["Cache-Control"] = FOR_EVER if fresh else FOR_AN_HOUR
    response.make_conditional(request)
    return response
