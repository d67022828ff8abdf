"""The attacker guesses passwords, from one address or from a thousand.

It ends at pauses that grow, counted for an account from one network, for a network, and for an
account from everywhere; and nobody can use them to shut out the person whose account it is.
"""

import re
from collections.abc import Callable

import pytest
from flask import Flask

from sso.models import User
from sso.ratelimit import limiting
from tests.attacks.conftest import Watch
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.factories import PASSWORD

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("watch")]

WRONG = "wrong wrong wrong"


def stranger(app: Flask, address: str) -> Browser:
    browser = Browser(app)
    browser.http.environ_base["REMOTE_ADDR"] = address
    return browser


def guess(browser: Browser, email: str = "dana@example.com", password: str = WRONG) -> Page:
    if "password" not in browser.page.fields:
        browser.open(f"{ORIGIN}{BASE}/sign-in")
    return browser.sign_in(email, password)


def shut_out(browser: Browser, email: str = "dana@example.com") -> int:
    """Guess until there is a pause; tells its seconds."""
    for _ in range(40):
        page = guess(browser, email)
        if page.status == 429:
            return int(page.headers["Retry-After"])
    raise AssertionError("nothing stops the guessing")


def test_pauses_grow_and_are_no_lock_out(app: Flask, user: User, watch: Watch) -> None:
    browser, pauses = stranger(app, "203.0.113.1"), []
    for _ in range(10):
        pauses.append(shut_out(browser))
        assert guess(browser, password=PASSWORD).status == 429  # even with the right one
        watch.now += pauses[-1]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 4
    assert pauses[-1] == limiting.SIGN_IN.pair.longest
    assert guess(browser, password=PASSWORD).path.endswith("/account")


def test_from_hundreds_of_addresses(app: Flask, user: User, watch: Watch) -> None:
    tried, browser = 0, stranger(app, "192.0.2.9")
    for number in range(400):
        address = f"198.51.{number // 250}.{number % 250 + 1}"
        browser.http.environ_base["REMOTE_ADDR"] = address
        tried += guess(browser).status == 200
        watch.now += 1
    # Some are free; then pauses for the account, whatever the address.
    assert 30 < tried < 50
    watch.now += 300
    assert guess(stranger(app, "192.0.2.9"), password=PASSWORD).path.endswith("/account")


def test_one_address_over_many_accounts(app: Flask, user: User) -> None:
    browser = stranger(app, "203.0.113.1")
    answers = [guess(browser, f"user{number}@example.com").status for number in range(230)]
    assert answers[:200] == [200] * 200
    assert answers[-20:] == [429] * 20


def test_a_stranger_does_not_shut_out_a_browser_that_is_known(app: Flask, user: User) -> None:
    own = stranger(app, "192.0.2.7")
    own.open(f"{ORIGIN}{BASE}/sign-in")
    own.submit(email=user.email, password=PASSWORD, remember="y")
    own.open(f"{ORIGIN}{BASE}/sign-out")
    own.submit(decision="sign_out")
    for number in range(60):
        guess(stranger(app, f"203.0.113.{number + 1}"))
    shut_out(stranger(app, "192.0.2.7"))  # from the very same network, too
    assert guess(stranger(app, "192.0.2.8"), password=PASSWORD).status == 429
    guess(own)
    assert guess(own, password=PASSWORD).path.endswith("/account")


def test_a_stolen_cookie_is_no_free_ticket(app: Flask, user: User) -> None:
    own = stranger(app, "192.0.2.7")
    guess(own, password=PASSWORD)
    known = own.http.get_cookie("sso_known", "127.0.0.1", BASE)
    assert known
    tried = 0
    for number in range(60):
        thief = stranger(app, f"203.0.113.{number + 1}")
        thief.http.set_cookie("sso_known", known.value, domain="127.0.0.1", path=BASE)
        tried += guess(thief).status == 200
    assert tried <= 22
    other = stranger(app, "203.0.113.200")
    other.http.set_cookie("sso_known", known.value, domain="127.0.0.1", path=BASE)
    assert shut_out(other, "erin@example.com") > 0  # and it names no other account


def test_a_forged_cookie_counts_for_nothing(app: Flask, user: User) -> None:
    browser = stranger(app, "203.0.113.1")
    browser.http.set_cookie("sso_known", "WyJ4IixbInkiXV0.aaaa.bbbb", domain="127.0.0.1", path=BASE)
    assert shut_out(browser) > 0


def test_limited_or_not_nobody_learns_who_has_an_account(app: Flask, user: User) -> None:
    seen = []
    for email in ("dana@example.com", "nobody@example.com"):
        browser = stranger(app, "203.0.113.1")
        pages = [guess(browser, email) for _ in range(8)]
        seen.append(
            [
                (page.status, page.headers.get("Retry-After"), _text(page.html, email))
                for page in pages
            ]
        )
    assert seen[0] == seen[1]
    assert [status for status, *_ in seen[0]].count(429) > 0


def _text(html: str, email: str) -> str:
    return re.sub(r'name="csrf_token"[^>]*', "", html).replace(email, "")


def test_one_ipv6_customer_is_one_address(app: Flask, user: User) -> None:
    tried = sum(
        guess(stranger(app, f"2001:db8:1:2::{number:x}")).status == 200 for number in range(1, 30)
    )
    assert tried <= 6
    assert guess(stranger(app, "2001:db8:1:3::1")).status == 200


def everything_from(app: Flask, addresses: list[str], guess_once: Callable[[], None]) -> int:
    """How many of these networks' guesses were let in."""
    let_in = 0
    for address in addresses:
        with app.test_request_context(environ_base={"REMOTE_ADDR": address}):
            try:
                guess_once()
            except limiting.TooManyAttempts:
                continue
            let_in += 1
    return let_in


RULES = [limiting.SIGN_IN, limiting.SECOND_FACTOR, limiting.PASSKEY, limiting.CLIENT_AUTHENTICATION]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_one_customer_with_many_networks(app: Flask, rule: limiting.Guessing) -> None:
    def of(prefix: str, many: int) -> list[str]:
        return [f"2001:db8:{prefix}{number:02x}::1" for number in range(many)]

    numbers = iter(range(1_000_000))

    def wrong() -> None:  # another account each time
        limiting.enter(rule, f"user{next(numbers)}@example.com").failed()

    free = rule.ip_address.free
    # A /56 has 256 networks; each of them tries fewer times than one may.
    tried = everything_from(app, of("1:1", 250) * 5, wrong)
    assert 2 * free <= tried <= 2 * free + 3
    assert everything_from(app, of("1:2", 20), wrong) == 20, "its neighbours may"
    # A /48 has 65 536.
    more = [address for branch in range(3, 40) for address in of(f"1:{branch:x}", 60)]
    tried += 20 + everything_from(app, more, wrong)
    assert 5 * free <= tried <= 5 * free + 5
    assert everything_from(app, of("2:1", 20), wrong) == 20, "another customer may"


@pytest.mark.parametrize(
    "rule", [limiting.PASSWORD_RESET, limiting.VERIFICATION, limiting.SIGN_UP], ids=lambda r: r.name
)
def test_one_customer_asks_for_mails(app: Flask, rule: limiting.Flooding) -> None:
    numbers = iter(range(1_000_000))

    def ask() -> None:
        limiting.spend(rule, f"user{next(numbers)}@example.com")

    branch = [f"2001:db8:1:1{number % 256:02x}::1" for number in range(400)]
    assert everything_from(app, branch, ask) == 2 * rule.ip_address
    site = [f"2001:db8:1:{number:x}00::1" for number in range(2, 200)] * 4
    assert everything_from(app, site, ask) == 3 * rule.ip_address
    assert everything_from(app, ["2001:db8:2::1"], ask) == 1


def test_forged_forwarding_headers_make_no_new_address(app: Flask) -> None:
    browser = stranger(app, "203.0.113.1")
    page = browser.open(f"{ORIGIN}{BASE}/sign-in")
    answers = []
    for number in range(12):
        form = {**page.fields, "email": "a@example.com", "password": WRONG}
        headers = {"X-Forwarded-For": f"198.51.100.{number}"}
        answers.append(browser.open(f"{BASE}/sign-in", "POST", data=form, headers=headers).status)
    assert answers[-1] == 429


def test_behind_a_proxy_each_person_is_an_address(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_TRUSTED_PROXIES="1")
    answers = {}
    for person in ("198.51.100.1", "198.51.100.2"):
        browser = stranger(app, "10.0.0.1")
        page = browser.open(f"{ORIGIN}{BASE}/sign-in")
        form = {**page.fields, "email": "a@example.com", "password": WRONG}
        # What the person wrote stands before what the proxy added.
        headers = {"X-Forwarded-For": f"192.0.2.1, {person}"}
        answers[person] = [
            browser.open(f"{BASE}/sign-in", "POST", data=form, headers=headers).status
            for _ in range(7)
        ]
        assert answers[person] == [200] * 6 + [429]


def test_guessing_a_clients_secret(client: RelyingParty, watch: Watch) -> None:
    answers = [client.exchange("x", client_secret="wrong") for _ in range(30)]
    assert [answer.status_code for answer in answers[:20]] == [401] * 20
    last = answers[-1]
    assert last.status_code == 429
    assert 1 <= int(last.headers["Retry-After"]) <= 60
    assert last.get_json()["error"] == "temporarily_unavailable"
    assert last.headers["Cache-Control"] == "no-store"
    # A stranger who knows the client's id does not shut it out.
    assert client.exchange("x").get_json()["error"] == "invalid_grant"
    assert client.revoke("x").status_code == 200
    watch.now += 3600
    assert client.exchange("x", client_secret="wrong").status_code == 401


def test_a_busy_client_is_never_limited(client: RelyingParty) -> None:
    answers = {client.exchange("x").status_code for _ in range(400)}
    assert answers == {400}


def test_the_old_password_at_a_browser_left_signed_in(app: Flask, user: User) -> None:
    browser = Browser(app)
    browser.sign_in()
    form = {"action": "change_password", "old_password": WRONG, "new_password": "a" * 20}
    answers = []
    for _ in range(12):
        browser.open(f"{BASE}/account")
        answers.append(browser.submit(**form))
    assert answers[0].status == 200
    assert answers[-1].status == 429
    assert answers[-1].headers["Retry-After"]
    assert "Please wait" in answers[-1].html


def test_flooding_with_mails(app: Flask) -> None:
    browser = stranger(app, "203.0.113.1")
    page = browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    answers = []
    for number in range(103):
        form = {**page.fields, "email": f"user{number}@example.com"}
        answers.append(browser.http.post(page.path, data=form, base_url=ORIGIN))
    assert [answer.status_code for answer in answers] == [303] * 100 + [429] * 3
    assert 3000 < int(answers[-1].headers["Retry-After"]) <= 3600
    assert "Please wait 60\N{NO-BREAK SPACE}minutes" in answers[-1].text
    other = stranger(app, "203.0.113.2")
    other.open(f"{ORIGIN}{BASE}/forgotten-password")
    assert "Check your inbox" in other.submit(email="dana@example.com").html


def test_guessing_a_second_factor_from_everywhere(app: Flask) -> None:
    tried = 0
    for number in range(200):
        where = {"REMOTE_ADDR": f"203.0.113.{number % 250}"}
        with app.test_request_context(environ_base=where):
            try:
                limiting.enter(limiting.SECOND_FACTOR, "dana@example.com").failed()
            except limiting.TooManyAttempts:
                continue
            tried += 1
    assert tried == 11
