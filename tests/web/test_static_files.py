"""Static files: one address for each content, kept for a year, compressed."""

import gzip
import re

import pytest
from flask import Flask

from sso.web.static_files import FOLDER
from tests.support.actors import BASE, Browser

CSS = (FOLDER / "sso.css").read_bytes()


def test_pages_link_to_addresses_that_may_be_kept_for_a_year(app: Flask, browser: Browser) -> None:
    page = browser.open(f"{BASE}/sign-in")
    linked = set(re.findall(r'(?:href|src)="([^"]*/static/[^"]*)"', page.html))
    assert len(linked) == 3
    for address in linked:
        answer = app.test_client().get(address)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize("query", ["", "?v=0ld"])
def test_another_address_is_kept_for_an_hour(app: Flask, query: str) -> None:
    answer = app.test_client().get(f"{BASE}/static/sso.css{query}")
    assert answer.headers["Cache-Control"] == "public, max-age=3600"
    assert answer.data == CSS


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, br", "gzip"), ("*", "gzip"), ("br", None), ("gzip;q=0", None), (None, None)],
)
def test_compressed_for_those_who_take_it(
    app: Flask, accepted: str | None, encoding: str | None
) -> None:
    headers = {"Accept-Encoding": accepted} if accepted else {}
    answer = app.test_client().get(f"{BASE}/static/sso.css", headers=headers)
    assert answer.headers.get("Content-Encoding") == encoding
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert (gzip.decompress(answer.data) if encoding else answer.data) == CSS
    assert answer.mimetype == "text/css"


def test_unchanged(app: Flask) -> None:
    client = app.test_client()
    etag = client.get(f"{BASE}/static/sso.css").headers["ETag"]
    answer = client.get(f"{BASE}/static/sso.css", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.data) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.css", "../settings.py", "%2e%2e/settings.py", ""])
def test_nothing_else_is_served(app: Flask, name: str) -> None:
    assert app.test_client().get(f"{BASE}/static/{name}").status_code == 404


def test_the_sign_in_page_is_small(app: Flask, browser: Browser) -> None:
    """What a first visit costs: the page, its style sheet, script and icon."""
    page = browser.open(f"{BASE}/sign-in")
    linked = set(re.findall(r'(?:href|src)="([^"]*/static/[^"]*)"', page.html))
    size = len(page.html.encode()) + sum(
        len(app.test_client().get(one, headers={"Accept-Encoding": "gzip"}).data) for one in linked
    )
    assert len(linked) + 1 <= 4
    assert size <= 15_000
