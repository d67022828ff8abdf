"""A person with a browser and a relying party's backend, over real HTTP, against any node."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import requests

from tests.support.actors import _Forms

CALLBACK = "http://127.0.0.1:9/callback"
PASSWORD = "correct horse battery"
EMAIL = "dana@example.com"


def picture_form(size: int) -> bytes:
    """A form with a picture, of so many bytes; its boundary is `b`."""
    head = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
    end = b"\r\n--b--\r\n"
    return head + b"&" * (size - len(head) - len(end)) + end


class Unfinished(Exception):
    """An answer that is neither a page nor a redirect; `answer` is it."""

    def __init__(self, answer: requests.Response) -> None:
        super().__init__(f"{answer.status_code} {answer.url} {answer.text[:300]}")
        self.answer = answer


@dataclass
class Person:
    """One browser. `base_url` may change in mid-flow: another node, the same cookies."""

    base_url: str
    client_id: str
    client_secret: str
    email: str = EMAIL
    browser: requests.Session = field(default_factory=requests.Session)
    timeout: float = 60

    def authorize(self, **more: str) -> str:
        """Ask for a code, signing in if asked to; gives the code. Raises `Unfinished`."""
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "state": "st4te",
            "scope": "openid profile email offline_access",
            **more,
        }
        return self.go_on("GET", f"{self.base_url}/oauth2/authorize", params=query)

    def go_on(self, method: str, url: str, **content: Any) -> str:
        """From here on to the code."""
        for _ in range(12):
            answer = self.browser.request(
                method, url, allow_redirects=False, timeout=self.timeout, **content
            )
            if answer.is_redirect:
                method, url, content = "GET", urljoin(url, answer.headers["Location"]), {}
                if url.startswith(CALLBACK):
                    found = parse_qs(urlsplit(url).query)
                    assert "code" in found, url
                    return found["code"][0]
                continue
            forms = _Forms()
            forms.feed(answer.text)
            if answer.status_code != 200 or "password" not in forms.fields:
                raise Unfinished(answer)
            method, data = "POST", {**forms.fields, "email": self.email, "password": PASSWORD}
            content = {"data": data}
        raise AssertionError(f"no end of redirects: {url}")

    def post(self, path: str, **form: str) -> requests.Response:
        credentials = {"client_id": self.client_id, "client_secret": self.client_secret}
        return requests.post(
            f"{self.base_url}{path}", data={**form, **credentials}, timeout=self.timeout
        )

    def exchange(self, code: str) -> requests.Response:
        return self.post(
            "/oauth2/token", grant_type="authorization_code", code=code, redirect_uri=CALLBACK
        )

    def refresh(self, refresh_token: str) -> requests.Response:
        return self.post("/oauth2/token", grant_type="refresh_token", refresh_token=refresh_token)

    def userinfo(self, access_token: str) -> requests.Response:
        return requests.get(
            f"{self.base_url}/oauth2/userinfo",
            headers={"Authorization": f"Bearer {access_token}"},
            timeout=self.timeout,
        )
