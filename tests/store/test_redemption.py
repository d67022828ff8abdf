"""What is redeemed and what it is redeemed for: both, or neither."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import func, select, update
from werkzeug.test import TestResponse

from sso import clock, database
from sso.crypto import secrets
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import Grant, Token, UsedOnce, User
from sso.services import transaction
from sso.store import redemption, tokens
from sso.store.redemption import SingleUse
from tests.conftest import Clock
from tests.store.test_races import at_once
from tests.support.actors import Browser, Page, RelyingParty
from tests.support.factories import make_client, new_token
from tests.support.processes import ROOT
from tests.support.proofs import DPoP
from tests.support.signing import make_fapi_client, make_keyed_client

LATER = timedelta(hours=1)
Redeem = Callable[..., bool]


@pytest.fixture(params=["code", "refresh token", "refresh token that stays"])
def redeem(
    request: pytest.FixtureRequest, browser: Browser, client: RelyingParty, user: User
) -> Redeem:
    code, client_id = browser.approve(client).code, client.client_id
    if request.param == "code":
        code_digest = secrets.digest(code)
        return lambda on, new, use=None: redemption.redeem_code(
            on, code_digest, client_id, new, use
        )
    digest = secrets.digest(client.exchange(code).get_json()["refresh_token"])
    stays = request.param != "refresh token"
    return lambda on, new, use=None: tokens.redeem_refresh(
        on, digest, client_id, new, new.issued_at + LATER if stays else None, use
    )


def only_grant() -> UUID:
    return db.session.scalars(select(Grant.id)).one()


def stored() -> int:
    return db.session.scalar(select(func.count()).select_from(Token)) or 0


def test_every_value_is_stored(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        new = replace(
            new_token(only_grant()),
            access_digest="of the access token",
            scope="openid email",
            is_narrowed=True,
            dpop_jkt="of a key",
            expires_at=clock.now() + LATER,
            refresh_digest="of the refresh token",
            refresh_expires_at=clock.now() + 2 * LATER,
        )
        with transaction.Transaction() as changes:
            assert redeem(changes.connection, new)
            changes.commit()
        row = db.session.get_one(Token, new.jti)
        assert {name: getattr(row, name) for name in vars(new)} == vars(new)
        assert (row.revoked_at, row.refresh_used_at) == (None, None)


def test_what_cannot_be_redeemed_stores_nothing(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        db.session.execute(update(Grant).values(ended_at=clock.now()))
        db.session.commit()
        with transaction.Transaction() as changes:
            assert not redeem(changes.connection, new)
            changes.commit()
        assert stored() == before


def test_what_is_not_stored_is_not_redeemed(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        of_none = replace(new, grant_id=UUID(int=0))
        with pytest.raises(Exception, match=r"(?i)foreign key"), database.connection() as on:
            redeem(on, of_none)
        with transaction.Transaction() as changes:
            assert redeem(changes.connection, new)
            changes.commit()
        assert stored() == before + 1


# What is redeemed together with an identifier: both, or neither.


def single_use(identifier: str = "1") -> SingleUse:
    return SingleUse("dpop proof", "a", identifier, clock.now() + LATER)


def used_identifiers() -> int:
    return db.session.scalar(select(func.count()).select_from(UsedOnce)) or 0


def test_an_identifier_counts_with_what_is_redeemed(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        with transaction.Transaction() as changes:
            assert redeem(changes.connection, new, use=single_use())
            changes.commit()
        assert (stored(), used_identifiers()) == (before + 1, 1)


def test_nothing_is_redeemed_for_a_used_identifier(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        assert use_committed(single_use())
        with pytest.raises(redemption.UsedBefore), database.connection() as on:
            redeem(on, new, use=single_use())
        assert (stored(), used_identifiers()) == (before, 1)
        with transaction.Transaction() as changes:  # nor is it used up
            assert redeem(changes.connection, new, use=single_use("2"))
            changes.commit()


def test_nothing_is_redeemed_for_too_many_identifiers(
    app: Flask, redeem: Redeem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 1)
    with app.app_context():
        before, new = stored(), new_token(only_grant())
        assert use_committed(single_use())
        with pytest.raises(redemption.TooManyUsed), database.connection() as on:
            redeem(on, new, use=single_use("2"))
        assert (stored(), used_identifiers()) == (before, 1)


def test_an_identifier_is_free_if_nothing_could_be_redeemed(app: Flask, redeem: Redeem) -> None:
    with app.app_context():
        new = new_token(only_grant())
        db.session.execute(update(Grant).values(ended_at=clock.now()))
        db.session.commit()
        with transaction.Transaction() as changes:
            assert not redeem(changes.connection, new, use=single_use())
        assert used_identifiers() == 0


def use_committed(use: SingleUse) -> bool:
    with transaction.Transaction() as changes:
        is_first = redemption.use_once(changes.connection, use, now=clock.now())
        changes.commit()
    return is_first


def test_one_code_with_many_proofs(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    for _ in range(3):
        code, key = browser.approve(client).code, DPoP()
        headers = iter([key.header() for _ in range(8)])

        def exchange(code: str = code, headers: Iterator[dict[str, str]] = headers) -> TestResponse:
            return client.exchange(code, next(headers))

        answers = at_once(8, exchange)
        assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 7}
    with app.app_context():
        assert stored() == 3


def test_a_refresh_token_that_stays_with_many_proofs(
    app: Flask, browser: Browser, user: User
) -> None:
    """Each request that waits for another one finds the row changed, and still redeemable."""
    bank = make_fapi_client(app, first_party=True)
    code = bank.approve(browser).code
    refresh_token = bank.exchange(code).get_json()["refresh_token"]
    for _ in range(4):
        answers = at_once(8, lambda: bank.refresh(refresh_token))
        assert {answer.status_code for answer in answers} == {200}
    with app.app_context():
        assert stored() == 33


# An identifier counts once, on every database and across connections.

LIFE = timedelta(minutes=1)


def use(app: Flask, holder: str = "a", identifier: str = "1", life: timedelta = LIFE) -> bool:
    now: datetime = clock.now()
    single_use = SingleUse("assertion", holder, identifier, now + life)
    with app.app_context(), db.engine.begin() as connection:
        return redemption.use_once(connection, single_use, now=now)


def test_once(app: Flask) -> None:
    assert [use(app), use(app)] == [True, False]
    assert use(app, holder="b")
    assert use(app, identifier="2")


def test_what_is_rolled_back_is_free_again(app: Flask) -> None:
    now = clock.now()
    with app.app_context(), db.engine.connect() as connection:
        connection.begin()
        assert redemption.use_once(
            connection, SingleUse("assertion", "a", "1", now + LIFE), now=now
        )
    assert use(app)


def test_one_of_many_at_once(app: Flask) -> None:
    assert at_once(20, lambda: use(app)).count(True) == 1


def test_a_holder_cannot_fill_the_table(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 2)
    assert use(app, identifier="1")
    assert use(app, identifier="2")
    with pytest.raises(redemption.TooManyUsed):
        use(app, identifier="3")
    assert not use(app, identifier="2")  # a replay is still seen
    assert use(app, holder="b", identifier="3")


def test_room_again_when_they_have_expired(
    app: Flask, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 1)
    assert use(app, identifier="1")
    clock.move(minutes=2)
    assert use(app, identifier="2")


def test_purged(app: Flask, clock: Clock) -> None:
    assert use(app, identifier="1")
    clock.move(minutes=3)
    with app.app_context():
        assert upkeep.purge()["used_once"] == 1
        assert not db.session.scalar(select(func.count()).select_from(UsedOnce))


def test_one_assertion_at_many_requests(app: Flask) -> None:
    bank = make_keyed_client(app)
    credentials = bank.credentials()
    answers = at_once(8, lambda: bank.post("/oauth2/introspect", {"token": "t", **credentials}))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 7}


_USE = """
import sys, time
from datetime import datetime, timedelta, UTC
from sso import database
from sso.store.redemption import SingleUse, use_once
engine = database.open_engine(sys.argv[1])
now = datetime.fromtimestamp(float(sys.argv[2]), UTC)
engine.connect().close()
first = 0
for turn, number in enumerate(range(300)[:: int(sys.argv[3])]):
    if turn == 50:  # both have begun, and race for the other 200
        print("ready", flush=True)
        sys.stdin.readline()
    with engine.begin() as connection:
        use = SingleUse("assertion", "a", str(number), now + timedelta(minutes=1))
        first += use_once(connection, use, now=now)
print(first)
"""


@pytest.mark.slow
def test_two_processes(app: Flask) -> None:
    with app.app_context():
        url = db.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", _USE, url, str(clock.now().timestamp())]
    both: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    nodes = [subprocess.Popen([*command, step], cwd=ROOT, **both) for step in ("1", "-1")]
    for node in nodes:
        assert node.stdout
        assert node.stdout.readline() == "ready\n"
    for node in nodes:
        assert node.stdin
        node.stdin.write("\n")
        node.stdin.flush()
    counts = [int(node.communicate(timeout=60)[0]) for node in nodes]
    assert sum(counts) == 300
    assert min(counts) >= 50, counts


# Pushed requests and DPoP proofs under real concurrency.


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
