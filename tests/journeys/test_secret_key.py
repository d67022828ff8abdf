"""The secret key is replaced: planned, while everybody goes on; and after it was lost or mixed up.

`old` has the first key, `both` the new one and the first as the previous, `new` the new one alone.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask

from sso import audit, context
from sso.checkup import components
from sso.crypto import secrets
from sso.extensions import db
from sso.jobs import upkeep
from sso.jobs.worker import rotate_aged_keys
from sso.models import KeyState, User
from sso.ratelimit import device_cookie
from sso.services import webhooks
from sso.services.signing_keys import RotationRefused
from sso.store import factors, keys
from sso.store import webhooks as stored_webhooks
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, ensure_keys, retire, rotate
from tests.support.processes import ROOT, SECRET_KEY
from tests.support.scim_receivers import connect, receiver_of
from tests.support.second_factors import code_of, enrol_totp, is_signed_in

NEW = "the secret key that comes after the one for tests"


@dataclass
class Apps:
    old: Flask
    both: Flask
    new: Flask


@pytest.fixture
def apps(clock: Clock, make_app: Callable[..., Flask]) -> Apps:
    return Apps(
        make_app(),
        make_app(SSO_SECRET_KEY=NEW, SSO_SECRET_KEY_PREVIOUS=SECRET_KEY),
        make_app(SSO_SECRET_KEY=NEW),
    )


def at(app: Flask, *actors: Browser | RelyingParty) -> None:
    """From now on they talk to this server."""
    for actor in actors:
        if isinstance(actor, Browser):
            actor.http.application = app
        else:
            actor.app = app


def run(app: Flask, *arguments: str) -> Any:
    result = app.test_cli_runner().invoke(args=arguments)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def reencrypt(app: Flask) -> dict[str, int]:
    result = run(app, "key", "reencrypt", "--json")
    assert result.exit_code == 0, result.stderr
    return {name: one["changed"] for name, one in json.loads(result.stdout).items()}


def stored(app: Flask) -> list[tuple[str, str, str]]:
    with app.app_context():
        return [(key.kid, key.state, key.sealed_private_jwk) for key in keys.every_signing_key()]


def test_everything_goes_on(
    apps: Apps, user: User, client: RelyingParty, browser: Browser, clock: Clock
) -> None:
    at(apps.old, browser, client)
    tokens = client.exchange(browser.approve(client, scope="openid offline_access").code).get_json()
    secret, _ = enrol_totp(browser)
    with apps.old.app_context():
        webhook, hook_secret = webhooks.create(audit.SYSTEM, "https://h.example/", ["signed_in"])
        db.session.commit()
    receiver = connect(apps.old, "https://scim.example/")
    waiting = Browser(apps.old)
    waiting.authorize(client, scope="openid")  # the sign-in page, with a request that waits

    at(apps.both, browser, waiting, client)
    assert is_signed_in(browser)
    assert "Set-Cookie" in browser.history[-1].headers  # signed again with the new key
    assert client.userinfo(tokens["access_token"]).status_code == 200
    waiting.sign_in()
    clock.move(seconds=60)
    assert waiting.submit(code=code_of(secret)).code
    with apps.new.app_context():
        assert "secrets of webhooks" in components.waiting()
        assert "tokens for SCIM services" in components.waiting()
    changed = {"signing_keys": 8, "totp_secrets": 1, "webhook_secrets": 1,
               "scim_tokens": 1, "audit_events": 0}  # fmt: skip
    assert reencrypt(apps.both) == changed
    assert reencrypt(apps.both) == dict.fromkeys(changed, 0)

    at(apps.new, browser, waiting, client)
    clock.move(seconds=60)
    assert is_signed_in(browser)
    assert is_signed_in(waiting)
    assert client.userinfo(tokens["access_token"]).status_code == 200
    tokens = client.refresh(tokens["refresh_token"]).get_json()
    assert client.userinfo(tokens["access_token"]).status_code == 200
    another = Browser(apps.new)
    another.authorize(client, scope="openid")
    another.sign_in()
    assert another.submit(code=code_of(secret)).code
    with apps.new.app_context():
        assert components.waiting() == []
        sealed = next(one for one in stored_webhooks.every() if one.id == webhook.id).sealed_secret
        secret_keys = apps.new.extensions["sso.settings"].secret_keys
        assert secrets.decrypt_webhook_secret(secret_keys, sealed) == hook_secret
    token = receiver_of(apps.new, receiver).sealed_token or ""
    assert secrets.decrypt_scim_token(secret_keys, token) == "a-token"


def test_without_the_previous_key_browsers_begin_anew(
    apps: Apps, user: User, browser: Browser, clock: Clock
) -> None:
    at(apps.old, browser)
    browser.sign_in()
    form = Browser(apps.old)
    form.open(f"{ORIGIN}{BASE}/sign-in")
    at(apps.new, browser, form)
    assert not is_signed_in(browser)
    assert "password" in form.sign_in().fields  # the same page with a fresh token, not an error


def test_a_form_that_was_open(apps: Apps, user: User, browser: Browser) -> None:
    at(apps.old, browser)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    at(apps.both, browser)
    assert browser.sign_in().path.endswith("/account")


def test_nodes_that_change_one_after_the_other(
    apps: Apps,
    make_app: Callable[..., Flask],
    user: User,
    client: RelyingParty,
    browser: Browser,
) -> None:
    """First every node learns to read the new key, then each writes with it."""
    ready = make_app(SSO_SECRET_KEY_PREVIOUS=NEW)
    for first, then in ((apps.old, ready), (ready, apps.both), (apps.both, ready)):
        at(first, browser, client)
        page = browser.authorize(client, prompt="login", max_age="0")
        at(then, browser, client)
        page = browser.sign_in()
        if ("decision", "allow") in page.buttons:
            at(first, browser)
            page = browser.allow()
        tokens = client.exchange(page.code).get_json()
        at(first, client)
        assert client.refresh(tokens["refresh_token"]).status_code == 200


def test_a_refresh_that_is_tried_again_across_the_change(
    apps: Apps, user: User, client: RelyingParty, browser: Browser
) -> None:
    at(apps.old, browser, client)
    presented = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
    first = client.refresh(presented).get_json()["refresh_token"]
    at(apps.both, client)
    assert client.refresh(presented).get_json()["refresh_token"] == first
    second = client.refresh(first).get_json()["refresh_token"]
    assert client.refresh(first).get_json()["refresh_token"] == second
    assert client.refresh(second).status_code == 200


def test_a_known_browser_is_known_under_the_new_key(
    apps: Apps, user: User, browser: Browser
) -> None:
    at(apps.old, browser)
    browser.sign_in()

    def knows(app: Flask, account: str) -> bool:
        cookie = browser.http.get_cookie("sso_known", "127.0.0.1", BASE)
        assert cookie
        headers = {"Cookie": f"sso_known={cookie.value}"}
        with app.test_request_context(BASE, headers=headers):
            return device_cookie.id_for(account) is not None

    assert knows(apps.both, user.email)
    assert not knows(apps.both, "erin@example.com")
    assert not knows(apps.new, user.email)
    at(apps.both, browser)
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    browser.sign_in()
    assert knows(apps.new, user.email)


def test_a_server_with_another_secret_key_says_so(
    apps: Apps, user: User, client: RelyingParty, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser(apps.old)
    code = browser.approve(client).code
    at(apps.new, client)
    ready = apps.new.test_client().get("/readyz")
    assert ready.status_code == 503
    assert "SSO_SECRET_KEY does not open" in ready.get_json()["reason"]
    refused = client.exchange(code)
    assert refused.status_code == 503
    assert refused.get_json()["error"] == "temporarily_unavailable"
    assert refused.headers["Retry-After"]
    assert [one for one in caplog.records if one.exc_info] == []
    assert "SSO_SECRET_KEY does not open" in caplog.text
    assert apps.new.test_client().get(f"{BASE}/oauth2/jwks").status_code == 200
    # The command that repairs it is run beside; the server notices by itself.
    reencrypt(apps.both)
    clock.move(seconds=11)
    assert apps.new.test_client().get("/readyz").status_code == 200
    at(apps.new, client)
    assert client.exchange(code).status_code == 200  # the code was not used up


def test_no_command_makes_keys_that_the_servers_cannot_open(apps: Apps, clock: Clock) -> None:
    before = stored(apps.old)
    following = next(kid for kid, state, _ in before if state == KeyState.NEXT)
    for arguments in (("rotate",), ("rotate", "--force"), ("retire", following)):
        refused = run(apps.new, "key", *arguments)
        assert refused.exit_code == 1
        assert refused.stderr.count("\n") == 1
        assert "SSO_SECRET_KEY does not open" in refused.stderr
        assert "SSO_SECRET_KEY_PREVIOUS" in refused.stderr
        assert stored(apps.old) == before
    assert run(apps.new, "db", "upgrade").exit_code == 0
    clock.move(days=100)
    with apps.new.app_context():
        assert rotate_aged_keys() == 0  # the worker's way
    assert stored(apps.old) == before
    assert run(apps.both, "key", "rotate", "--force").exit_code == 0
    assert stored(apps.old) != before


@pytest.mark.parametrize(
    "arguments", [("key", "reencrypt"), ("key", "reencrypt", "--over-faults"), ("audit", "verify")]
)
@pytest.mark.parametrize("waits", [True, False])
def test_another_secret_key_is_not_taken_for_a_forged_audit_trail(
    apps: Apps,
    user: User,
    caplog: pytest.LogCaptureFixture,
    arguments: tuple[str, ...],
    waits: bool,
) -> None:
    Browser(apps.old).sign_in()
    assert run(apps.old, "audit", "verify").exit_code == 0
    if waits:
        Browser(apps.old).sign_in()
    refused = run(apps.new, *arguments)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == run(apps.new, "key", "rotate").stderr
    assert "audit_verification_failed" not in caplog.text
    assert run(apps.old, "audit", "verify").exit_code == 0


def test_missing_keys_are_not_made_beside_those_of_another_secret_key(apps: Apps) -> None:
    with apps.new.app_context():
        row = next(one for one in keys.every_signing_key() if one.state == KeyState.NEXT)
        keys.remove_signing_key(row)
        db.session.commit()
        with pytest.raises(RotationRefused):
            ensure_keys(NEW)
        assert len(keys.every_signing_key()) == 7
        assert ensure_keys(SECRET_KEY)


def test_a_secret_key_that_is_lost(apps: Apps, user: User, client: RelyingParty) -> None:
    before = {kid for kid, _, _ in stored(apps.old)}
    assert run(apps.new, "key", "rotate", "--lost-secret-key").exit_code == 0
    after = stored(apps.old)
    used = {kid for kid, state, _ in after if state != KeyState.RETIRED}
    assert len(used) == 8
    assert not used & before
    assert {kid for kid, state, _ in after if state == KeyState.RETIRED} == before
    at(apps.new, client)
    assert client.exchange(Browser(apps.new).approve(client).code).status_code == 200


def test_with_the_right_key_nothing_counts_as_lost(apps: Apps) -> None:
    following = {kid for kid, state, _ in stored(apps.old) if state == KeyState.NEXT}
    assert run(apps.old, "key", "rotate", "--lost-secret-key").exit_code == 0
    assert {kid for kid, state, _ in stored(apps.old) if state == KeyState.ACTIVE} == following
    assert run(apps.old, "key", "rotate").exit_code == 1  # the next keys are too young
    assert run(apps.old, "key", "rotate", "--lost-secret-key").exit_code == 0


def test_what_neither_key_opens_is_told(
    apps: Apps, make_app: Callable[..., Flask], user: User, browser: Browser
) -> None:
    at(apps.old, browser)
    browser.sign_in()
    enrol_totp(browser)
    before = stored(apps.old)
    for wrong in (apps.new, make_app(SSO_SECRET_KEY=NEW, SSO_SECRET_KEY_PREVIOUS=NEW[::-1])):
        failed = run(wrong, "key", "reencrypt")
        assert failed.exit_code == 1
        assert stored(apps.old) == before
    with apps.old.app_context():
        assert components.waiting() == []
    with apps.new.app_context():
        assert components.waiting()[:2] == ["signing keys", "authenticator apps"]
        assert upkeep.reencrypt_totp_secrets().unreadable == (str(user.id),)


def test_what_is_enrolled_meanwhile_is_not_overwritten(apps: Apps, user: User) -> None:
    browser = Browser(apps.old)
    browser.sign_in()
    enrol_totp(browser)
    with apps.both.app_context():
        (row,) = factors.totp_secret_batch(None, 9)
        before = row.sealed_secret
        assert not factors.replace_totp_secret(row.user_id, "another", "mine")
        assert factors.totp_secret_batch(row.user_id, 9) == []
        assert factors.replace_totp_secret(row.user_id, before, "mine")
        kid, _, sealed = stored(apps.old)[0]
        assert not keys.replace_signing_key(kid, "another", "mine")
        assert keys.replace_signing_key(kid, sealed, "mine")


def test_many_secrets_are_done_in_batches(
    apps: Apps, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.factories import make_user

    monkeypatch.setattr(upkeep, "REENCRYPTION_BATCH", 2)
    for number in range(5):
        make_user(apps.old, f"person{number}@example.com")
        browser = Browser(apps.old)
        browser.sign_in(f"person{number}@example.com", PASSWORD)
        enrol_totp(browser)
    seen: list[tuple[int, int]] = []
    with apps.both.app_context():
        count = upkeep.reencrypt_totp_secrets(lambda *given: seen.append(given))
        assert count.changed == 5
    assert seen == [(2, 5), (2, 5), (1, 5)]
    with apps.new.app_context():
        assert upkeep.reencrypt_totp_secrets().changed == 0


def test_a_wrong_second_factor_because_of_the_key_is_on_the_log(
    apps: Apps, user: User, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    browser = Browser(apps.old)
    browser.sign_in()
    secret, _ = enrol_totp(browser)
    clock.move(seconds=60)
    stranger = Browser(apps.new)
    stranger.sign_in()
    assert "code" in stranger.submit(code=code_of(secret)).fields
    assert f"authenticator app's secret of user {user.id}" in caplog.text


def test_retiring_and_rotating_with_both_keys(apps: Apps) -> None:
    """What is made while the key is replaced is made with the new one."""
    with apps.both.app_context():
        rotate(context.settings().secret_keys, force=True)
        following = next(key for key in keys.every_signing_key() if key.state == KeyState.NEXT)
        retire(following.kid, context.settings().secret_keys)
    with apps.new.app_context(), pytest.raises(RotationRefused):
        rotate(NEW, force=True)  # those that became active are still the old key's
    reencrypt(apps.both)
    with apps.new.app_context():
        rotate(NEW, force=True)


def test_the_manual_restarts_the_servers_before_anything_is_reencrypted() -> None:
    manual = (ROOT / "docs/how-to/secret-key.md").read_text()
    for heading in ("## Replace the key, planned", "### The key in `instance/secret_key`"):
        section = manual.partition(f"{heading}\n")[2].partition("\n#")[0]
        places = [section.index(words) for words in ("restart", "key reencrypt", "audit verify")]
        assert places == sorted(places), heading
