"""What ends what: the table of docs/explanation/revocation.md, from the very next request."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.config.upstream.ldap import LdapProvider
from sso.extensions import db
from sso.flow import decision
from sso.jobs import upkeep
from sso.models import BrowserSession, Identity, LogoutDelivery, UpstreamSession, User
from sso.services import identities
from sso.store import identities as stored_identities
from sso.upstream.identity import UpstreamIdentity
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_client
from tests.support.second_factors import enrol_totp

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = f"{ORIGIN}{BASE}/account"
CALLBACK = "https://books.example/backchannel"
SCOPE = "openid profile email"
CORP = LdapProvider(
    id="corp", type="ldap", name="Corp", directory="openldap", servers=(), base="dc=x"
)


class Holding(NamedTuple):
    """What one browser has opened: tokens, and those with `offline_access`."""

    browser: Browser
    code: str
    plain: dict[str, Any]
    offline: dict[str, Any]


class Scene:
    """One person on two browsers, with an application that has both kinds of tokens from each."""

    def __init__(self, app: Flask, user: User) -> None:
        self.app, self.user = app, user
        self.client = make_client(
            app,
            scope=f"{SCOPE} offline_access",
            backchannel_logout_uri=CALLBACK,
            groups=["staff"],
        )
        self.here = self._open()
        self.there = self._open()

    def _open(self) -> Holding:
        browser = Browser(self.app)
        code = browser.approve(self.client, scope=SCOPE).code
        plain = self.client.exchange(code).get_json()
        both = browser.approve(self.client, scope=f"{SCOPE} offline_access").code
        return Holding(browser, code, plain, self.client.exchange(both).get_json())

    def flask(self, *arguments: str, stdin: str | None = None) -> None:
        result = self.app.test_cli_runner().invoke(args=arguments, input=stdin)
        assert result.exit_code == 0, result.stderr

    def account(self, **form: str) -> None:
        self.here.browser.open(ACCOUNT)
        self.here.browser.submit(**form)

    def measure(self) -> str:
        """The effects, a word for each thing that ended."""
        sides = (("here", self.here), ("there", self.there))
        ended = []
        for name, side in sides:
            if not side.browser.open(ACCOUNT).path.endswith("/account"):
                ended.append(f"session {name}")
            for kind, tokens in (("tokens", side.plain), ("offline tokens", side.offline)):
                if self._dead(tokens):
                    ended.append(f"{kind} {name}")
                elif "email" not in self.client.userinfo(tokens["access_token"]).get_json():
                    ended.append(f"email of {kind} {name}")
        with self.app.app_context():
            told = db.session.scalars(select(LogoutDelivery.sid)).all()
        assert len(told) == len(set(told))
        return ", ".join(ended) + f"; logout tokens: {len(told)}"

    def _dead(self, tokens: dict[str, Any]) -> bool:
        """Userinfo, introspection and refresh agree."""
        access = tokens["access_token"]
        refused = self.client.userinfo(access).status_code == 401
        asked = self.client.introspect(access)
        inactive = asked.status_code == 401 or not asked.get_json()["active"]
        refreshed = self.client.refresh(tokens["refresh_token"])
        assert refused == inactive == (refreshed.status_code != 200)
        if not refused:
            known = self.client.userinfo(access).get_json()
            for scopes in (asked.get_json()["scope"], refreshed.get_json()["scope"]):
                assert ("email" in scopes.split()) == ("email" in known)
        return refused


def _sign_out(scene: Scene) -> None:
    scene.here.browser.open(f"{ORIGIN}{BASE}/sign-out")
    scene.here.browser.submit(decision="sign_out")


def _code_reuse(scene: Scene, clock: Clock) -> None:
    clock.move(seconds=5)
    scene.client.exchange(scene.here.code)


def _bar(scene: Scene) -> None:
    found = UpstreamIdentity(CORP.issuer, "1")
    with scene.app.app_context():
        user = db.session.get(User, scene.user.id)
        assert user
        identity = identities.link(audit.SYSTEM, user, CORP, found)
        identities.disable_user(audit.SYSTEM, CORP, identity, "disabled")
        db.session.commit()


def _end(scene: Scene, clock: Clock) -> None:
    """The worker runs, which sends the logout tokens; all else ends without it."""
    end = clock.time + timedelta(seconds=10)
    scene.flask("user", "update", scene.user.email, "--ends-at", end.isoformat())
    clock.move(seconds=10)
    with scene.app.app_context():
        assert upkeep.end_due() == 1


def _end_membership(scene: Scene, clock: Clock) -> None:
    end = clock.time + timedelta(seconds=10)
    time = f"staff={end.isoformat()}"
    scene.flask("user", "update", scene.user.email, "--group-end", time)
    clock.move(seconds=10)
    with scene.app.app_context():
        assert upkeep.end_due() == 1


def _delete_account(scene: Scene) -> None:
    settings = scene.app.extensions["sso.settings"]
    scene.app.extensions["sso.settings"] = replace(settings, account_deletion="on")
    scene.here.browser.open(f"{ACCOUNT}/delete")
    scene.here.browser.submit(password=PASSWORD)


def _untick(scene: Scene) -> None:
    browser = scene.here.browser
    page = browser.authorize(scene.client, scope=SCOPE, prompt="consent")
    fields = {name: value for name, value in page.fields.items() if name != "scope_email"}
    browser.open(page.url, method="POST", data={**fields, "decision": "allow"})


def _enrol(scene: Scene) -> None:
    enrol_totp(scene.here.browser)


def _refresh_reuse(scene: Scene, clock: Clock) -> None:
    old = scene.here.plain["refresh_token"]
    scene.here.plain["refresh_token"] = scene.client.refresh(old).get_json()["refresh_token"]
    clock.move(seconds=11)
    scene.client.refresh(old)


MINE = "session here, tokens here"
ALL = (
    "session here, tokens here, offline tokens here, "
    "session there, tokens there, offline tokens there; logout tokens: 2"
)
TOKENS = "tokens here, offline tokens here, tokens there, offline tokens there"
EMAIL = ", ".join(f"email of {what}" for what in TOKENS.split(", "))


def _through_provider(scene: Scene, *sides: int) -> tuple[Identity, UpstreamSession]:
    """As if these browsers, here and there, had been signed in through a provider."""
    identity = Identity(user_id=scene.user.id, provider="corp", issuer="i", subject="s")
    stored_identities.add(identity)
    known = select(BrowserSession.id).order_by(BrowserSession.created_at)
    live = db.session.scalars(known).all()[-2:]
    for side in sides:
        session = UpstreamSession(identity_id=identity.id, session_id=live[side], amr="fed")
        stored_identities.add_session(session)
    return identity, session


def _by_provider(scene: Scene) -> None:
    with scene.app.app_context():
        _through_provider(scene, 0)
        assert identities.end_sessions(audit.SYSTEM, "i", "s", None) == 1
        db.session.commit()


def _by_recheck(scene: Scene) -> None:
    with scene.app.app_context():
        identity, session = _through_provider(scene, 0)
        identities.confirm_session(audit.SYSTEM, CORP, session, identity, None)
        db.session.commit()


def _remove_identity(scene: Scene) -> None:
    with scene.app.app_context():
        _through_provider(scene, 0, 1)
        db.session.commit()
    scene.here.browser.open(f"{ACCOUNT}/identities")
    scene.here.browser.submit(action="remove")


def _remove_identity_of_another(scene: Scene) -> None:
    with scene.app.app_context():
        _through_provider(scene, 0)
        db.session.commit()
    scene.flask("user", "unlink", scene.user.email, "corp", "--yes")


CAUSES: dict[str, tuple[Callable[[Scene, Clock], object], str]] = {
    "sign-out": (lambda s, _: _sign_out(s), f"{MINE}; logout tokens: 1"),
    "sign-out everywhere": (
        lambda s, _: s.account(action="end_all_sessions"),
        f"{MINE}, session there, tokens there; logout tokens: 2",
    ),
    "first second factor": (
        lambda s, _: _enrol(s),
        "session there, tokens there, offline tokens there; logout tokens: 1",
    ),
    "back-channel logout by an upstream provider": (
        lambda s, _: _by_provider(s),
        f"{MINE}; logout tokens: 1",
    ),
    "recheck refused by an upstream provider": (
        lambda s, _: _by_recheck(s),
        f"{MINE}; logout tokens: 1",
    ),
    "connected account removed": (
        lambda s, _: _remove_identity(s),
        "session there, tokens there; logout tokens: 1",
    ),
    "connected account removed by an operator": (
        lambda s, _: _remove_identity_of_another(s),
        f"{MINE}; logout tokens: 1",
    ),
    "sign-out by an operator": (
        lambda s, _: s.flask("user", "sign-out", s.user.email),
        f"{MINE}, session there, tokens there; logout tokens: 2",
    ),
    "second factors reset by an operator": (
        lambda s, _: s.flask("user", "reset-factors", s.user.email),
        f"{MINE}, session there, tokens there; logout tokens: 2",
    ),
    "password change": (
        lambda s, _: s.account(
            action="change_password", old_password=PASSWORD, new_password="another long password"
        ),
        "session there, tokens there, offline tokens there; logout tokens: 1",
    ),
    "password set by an operator": (
        lambda s, _: s.flask(
            "user", "set-password", s.user.email, "--password-stdin", stdin="a new long password\n"
        ),
        ALL,
    ),
    "user disabled": (lambda s, _: s.flask("user", "disable", s.user.email), ALL),
    "end of the account": (_end, ALL),
    "barred by the directory": (lambda s, _: _bar(s), ALL),
    "user deleted": (lambda s, _: s.flask("user", "delete", s.user.email, "--yes"), ALL),
    "own account deleted": (lambda s, _: _delete_account(s), ALL),
    "client disabled": (
        lambda s, _: s.flask("client", "disable", s.client.client_id),
        f"{TOKENS}; logout tokens: 0",
    ),
    "client deleted": (
        lambda s, _: s.flask("client", "delete", s.client.client_id, "--yes"),
        f"{TOKENS}; logout tokens: 0",
    ),
    "consent withdrawn": (
        lambda s, _: s.account(action="withdraw", client=s.client.client_id),
        f"{TOKENS}; logout tokens: 2",
    ),
    "group lost": (
        lambda s, _: s.flask("user", "update", s.user.email, "--set-groups", ""),
        f"{TOKENS}; logout tokens: 2",
    ),
    "end of a membership": (_end_membership, f"{TOKENS}; logout tokens: 2"),
    "client for other groups": (
        lambda s, _: s.flask("client", "update", s.client.client_id, "--set-groups", "boards"),
        f"{TOKENS}; logout tokens: 2",
    ),
    "client requires two factors": (
        lambda s, _: s.flask("client", "update", s.client.client_id, "--require-mfa"),
        f"{TOKENS}; logout tokens: 0",
    ),
    "client requires DPoP": (
        lambda s, _: s.flask("client", "update", s.client.client_id, "--require-dpop"),
        f"{TOKENS}; logout tokens: 0",
    ),
    "scope taken from the client": (
        lambda s, _: s.flask(
            "client", "update", s.client.client_id, "--set-scopes", "openid profile offline_access"
        ),
        f"{EMAIL}; logout tokens: 0",
    ),
    "scope unticked": (lambda s, _: _untick(s), f"{EMAIL}; logout tokens: 0"),
    "code reuse": (_code_reuse, "tokens here; logout tokens: 0"),
    "refresh reuse": (_refresh_reuse, "tokens here; logout tokens: 0"),
    "refresh token revoked": (
        lambda s, _: s.client.revoke(s.here.plain["refresh_token"]),
        "tokens here; logout tokens: 0",
    ),
}


@pytest.fixture
def scene(app: Flask, clock: Clock) -> Scene:
    from tests.support.factories import make_user

    return Scene(app, make_user(app, groups=["staff"]))


@pytest.mark.parametrize("cause", CAUSES)
def test_it_ends_this_and_nothing_else(scene: Scene, clock: Clock, cause: str) -> None:
    act, effect = CAUSES[cause]
    act(scene, clock)
    assert scene.measure() == effect


def test_the_documented_table_is_this_one() -> None:
    text = (ROOT / "docs" / "explanation" / "revocation.md").read_text()
    rows = dict(re.findall(r"^\| (.+?) \| (.+; logout tokens: \d) \|$", text, re.MULTILINE))
    assert rows == {cause: effect for cause, (_, effect) in CAUSES.items()}


KINDS = {
    decision.SESSIONS: "session here",
    decision.TOKENS: "tokens here",
    decision.OFFLINE: "offline tokens here",
    decision.NOTIFIED: "logout tokens: 2",
}


@pytest.mark.parametrize("cause", decision.ENDS)
def test_admin_pages_say_the_same(cause: str) -> None:
    parts = re.split("[,;] ", CAUSES[cause][1])
    assert decision.ENDS[cause] == tuple(one for one, part in KINDS.items() if part in parts)
