"""Pushed requests and DPoP proofs under real concurrency."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from threading import Barrier

from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import Grant, User
from tests.store.test_races import at_once
from tests.support.actors import Browser, Page, RelyingParty
from tests.support.factories import make_client
from tests.support.proofs import DPoP


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


def test_one_proof_for_many_codes(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    header = DPoP().header()
    codes = [browser.approve(client).code for _ in range(8)]
    left = iter(codes)
    answers = at_once(8, lambda: client.exchange(next(left), header))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 7}
    assert {one.get_json()["error"] for one in answers if one.status_code == 400} == {
        "invalid_dpop_proof"
    }


def test_one_proof_for_many_calls(browser: Browser, client: RelyingParty, user: User) -> None:
    key = DPoP()
    token = client.exchange(browser.approve(client).code, key.header()).get_json()["access_token"]
    proof = key.proof("/oauth2/userinfo", token=token)
    answers = at_once(8, lambda: key.userinfo(client, token, proof=proof))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 7}


def test_the_right_key_among_wrong_ones(browser: Browser, client: RelyingParty, user: User) -> None:
    """A thief who has the code, but not its key, gets no tokens and does not use it up."""
    right, wrong = DPoP(), DPoP()
    code = browser.approve(client, dpop_jkt=right.jkt).code
    headers = iter([wrong.header(), right.header(), *(wrong.header() for _ in range(6))])
    answers = at_once(8, lambda: client.exchange(code, next(headers)))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 7}
    winner = next(answer for answer in answers if answer.status_code == 200).get_json()
    assert right.userinfo(client, winner["access_token"]).status_code == 200


def test_a_refresh_token_and_the_wrong_key(app: Flask, browser: Browser, user: User) -> None:
    public = make_client(app, public=True, redirect_uris=["https://spa.example/cb"])
    right, wrong = DPoP(), DPoP()
    tokens = public.exchange(browser.approve(public).code, right.header()).get_json()
    headers = iter([wrong.header(), right.header(), *(wrong.header() for _ in range(6))])
    answers = at_once(8, lambda: public.refresh(tokens["refresh_token"], next(headers)))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 7}
    winner = next(answer for answer in answers if answer.status_code == 200).get_json()
    assert right.userinfo(public, winner["access_token"]).status_code == 200
    again = public.refresh(winner["refresh_token"], right.header())
    assert again.status_code == 200  # no wrong key has ended the grant
