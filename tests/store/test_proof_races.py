"""Pushed requests under real concurrency."""

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from threading import Barrier

from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import Grant, User
from tests.support.actors import Browser, Page, RelyingParty


def signed_in_alike(app: Flask, one: Browser, count: int) -> list[Browser]:
    """Browsers with the cookies of another one."""
    browsers = [Browser(app) for _ in range(count)]
    cookies = one.http._cookies
    assert cookies is not None
    for browser in browsers:
        copies = browser.http._cookies
        assert copies is not None
        for cookie in cookies.values():
            copies[cookie._storage_key] = copy(cookie)
    return browsers


def test_one_pushed_request(app: Flask, client: RelyingParty, user: User) -> None:
    one = Browser(app)
    one.approve(client)
    for _ in range(3):
        uri = client.push().get_json()["request_uri"]
        query = {"client_id": client.client_id, "request_uri": uri}
        together = Barrier(4)

        def bring(
            browser: Browser, query: dict[str, str] = query, together: Barrier = together
        ) -> Page:
            together.wait(30)
            return browser.open_authorize(query)

        with ThreadPoolExecutor(4) as pool:
            pages = list(pool.map(bring, signed_in_alike(app, one, 4)))
        answered = [page for page in pages if not page.is_at_server]
        assert len(answered) == 1
        assert client.exchange(answered[0].code).status_code == 200
        assert {page.status for page in pages if page.is_at_server} == {400}
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Grant)) == 4
