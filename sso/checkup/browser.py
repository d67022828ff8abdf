"""A browser, as far as the checks need one, over real HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from math import inf
from time import monotonic
from urllib.parse import urljoin

import requests

from sso.i18n.message import Message

TIMEOUT = 15  # seconds
MOST_STEPS = 10
MOST_BYTES = 1_000_000


class LeftServer(Exception):
    """A redirect led away from the public URL; `str()` is the target without its query."""


class _Form(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.buttons: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "input" and "name" in found:
            self.fields[found["name"]] = found.get("value", "")
        elif tag == "button" and "name" in found:
            self.buttons.add((found["name"], found.get("value", "")))


@dataclass
class Page:
    """Where the browser ended: a page of the server, or the client's callback URL."""

    url: str
    response: requests.Response | None = None
    fields: dict[str, str] = field(default_factory=dict)
    buttons: set[tuple[str, str]] = field(default_factory=set)

    @property
    def status(self) -> int:
        return self.response.status_code if self.response is not None else 0


class Browser:
    """Follows redirects only below the public URL; the callback URL is never opened.

    `within`: the seconds for all requests together.
    """

    def __init__(self, base_url: str, callback: str, within: float = inf) -> None:
        self.base_url, self.callback = base_url, callback
        self._end = monotonic() + within
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "sso-doctor"
        self.cookie_lines: list[str] = []

    def timeout(self) -> float:
        """The seconds that the next request may take. Raises `requests.Timeout` if none is left."""
        left = self._end - monotonic()
        if left <= 0:
            raise requests.Timeout
        return min(TIMEOUT, left)

    def open(self, url: str, form: Mapping[str, str] | None = None, **headers: str) -> Page:
        """Follow a URL to a page or the callback. Raises `LeftServer`."""
        for _ in range(MOST_STEPS):
            if url.startswith(self.callback):
                return Page(url)
            if not url.startswith(f"{self.base_url}/"):
                raise LeftServer(url.partition("?")[0][:200])
            response = self.session.request(
                "POST" if form else "GET",
                url,
                data=form,
                headers=headers,
                timeout=self.timeout(),
                allow_redirects=False,
            )
            self.cookie_lines += response.raw.headers.getlist("Set-Cookie")
            if response.status_code not in (302, 303):
                return _page(url, response)
            url, form = urljoin(url, response.headers["Location"]), None
        raise LeftServer(Message("a loop"))

    def submit(self, page: Page, values: Mapping[str, str], **headers: str) -> Page:
        """Submit the form of a page to the page's own URL, as all our forms do."""
        return self.open(page.url, {**page.fields, **values}, **headers)


def _page(url: str, response: requests.Response) -> Page:
    form = _Form()
    form.feed(response.text[:MOST_BYTES])
    return Page(url, response, form.fields, form.buttons)
