"""What ends what, in a world with more in it: what is old, not redeemed, and other people's.

The table in test_what_ends_what.py has one person with one client and two live sessions. Here are
offline grants whose session was purged or has expired, codes that are not redeemed, a second
client, and a second person: each cause ends what it names, and nothing else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.jobs import upkeep
from sso.models import BrowserSession, Grant, LogoutDelivery
from tests.conftest import Clock
from tests.endpoints.test_what_ends_what import ACCOUNT, CAUSES, SCOPE, Holding, Scene
from tests.support.actors import Browser, RelyingParty, claims_of
from tests.support.factories import make_client, make_user

pytestmark = pytest.mark.slow

OFFLINE = f"{SCOPE} offline_access"
ERIN = "erin@example.com"


class Held(NamedTuple):
    """Tokens of a client, or a code that is not redeemed yet."""

    client: RelyingParty
    tokens: dict[str, Any]
    code: str | None = None

    def lives(self) -> bool:
        if self.code is not None:
            return self.client.exchange(self.code).status_code == 200
        return self.client.refresh(self.tokens["refresh_token"]).status_code == 200


def obtain(browser: Browser, client: RelyingParty, scope: str, email: str | None = None) -> Held:
    page = browser.authorize(client, scope=scope)
    if "password" in page.fields:
        page = browser.sign_in(email or "dana@example.com")
    if ("decision", "allow") in page.buttons:
        page = browser.allow()
    return Held(client, client.exchange(page.code).get_json())


class World(Scene):
    """A fortnight of two people and two clients."""

    def __init__(self, app: Flask, clock: Clock) -> None:
        self.app, self.user = app, make_user(app, groups=["staff"])
        make_user(app, ERIN, name="Erin", groups=["staff"])
        self.client = make_client(
            app,
            scope=OFFLINE,
            groups=["staff"],
            backchannel_logout_uri="https://books.example/backchannel",
        )
        films = make_client(
            app,
            name="Films",
            scope=OFFLINE,
            redirect_uris=["https://films.example/callback"],
            backchannel_logout_uri="https://films.example/backchannel",
        )
        purged = obtain(Browser(app), self.client, OFFLINE)
        clock.move(days=2)
        expired = obtain(Browser(app), self.client, OFFLINE)
        clock.move(days=14, hours=1)
        with app.app_context():
            upkeep.purge()
        self.browsers = {name: Browser(app) for name in ("here", "there", "third", "erin")}
        held = {
            "purged offline": purged,
            "expired offline": expired,
            "here plain": obtain(self.browsers["here"], self.client, SCOPE),
            "here offline": obtain(self.browsers["here"], self.client, OFFLINE),
            "there plain": obtain(self.browsers["there"], self.client, SCOPE),
            "there offline": obtain(self.browsers["there"], self.client, OFFLINE),
            "films plain": obtain(self.browsers["here"], films, SCOPE),
            "films offline": obtain(self.browsers["here"], films, OFFLINE),
            "erin plain": obtain(self.browsers["erin"], self.client, SCOPE, ERIN),
            "erin offline": obtain(self.browsers["erin"], self.client, OFFLINE, ERIN),
        }
        self.browsers["third"].sign_in()
        used = self.browsers["here"].authorize(self.client, scope=SCOPE).code
        self.here = Holding(
            self.browsers["here"],
            used,
            self.client.exchange(used).get_json(),
            held["here offline"].tokens,
        )
        for name, browser, scope in (
            ("here code", "here", SCOPE),
            ("third code", "third", SCOPE),
            ("third offline code", "third", OFFLINE),
        ):
            page = self.browsers[browser].authorize(self.client, scope=scope)
            held[name] = Held(self.client, {}, page.code)
        self.held = held
        self.names = {
            claims_of(one.tokens["id_token"])["sid"]: name.split()[0]
            for name, one in held.items()
            if one.tokens and not name.startswith("films")
        }
        self.films = films
        with app.app_context():
            rows = {str(sid) for sid in db.session.scalars(select(BrowserSession.id))}
            gone = db.session.scalars(select(Grant.sid).where(Grant.session_id.is_(None))).all()
        assert [self.names[sid] for sid in gone] == ["purged"]
        (third,) = rows - self.names.keys()
        self.names[third] = "third"

    def measure(self) -> str:
        """What ended, and whom which client is told of."""
        ended = [
            f"{name} session"
            for name, browser in self.browsers.items()
            if not browser.open(ACCOUNT).path.endswith("/account")
        ]
        ended += [name for name, one in self.held.items() if not one.lives()]
        with self.app.app_context():
            rows = db.session.execute(select(LogoutDelivery.client_id, LogoutDelivery.sid)).all()
        clients = {self.client.client_id: "books", self.films.client_id: "films"}
        told = [f"{clients[client_id]} of {self.names[sid]}" for client_id, sid in rows]
        assert len(told) == len(set(told))
        return f"{', '.join(sorted(ended))}; told: {', '.join(sorted(told)) or 'nobody'}"


def row(ended: str, told: str) -> str:
    def tidy(text: str) -> str:
        return ", ".join(sorted(one.strip() for one in text.split(",")))

    return f"{tidy(ended)}; told: {tidy(told)}"


HERE = "here session, here plain, here code, films plain"
ELSEWHERE = "there session, there plain, third session, third code"
OFFLINE_ELSEWHERE = "there offline, third offline code, expired offline, purged offline"
LIVE_SESSIONS = row(
    f"{HERE}, {ELSEWHERE}", "books of here, films of here, books of there, books of third"
)
ALL = row(
    f"{HERE}, here offline, films offline, {ELSEWHERE}, {OFFLINE_ELSEWHERE}",
    "books of here, films of here, books of there, books of third, books of expired, "
    "books of purged",
)
ALL_ELSEWHERE = row(
    f"{ELSEWHERE}, {OFFLINE_ELSEWHERE}",
    "books of there, books of third, books of expired, books of purged",
)
AT_BOOKS = "here plain, here code, here offline, there plain, third code, " + OFFLINE_ELSEWHERE
TOLD_BOOKS = "books of here, books of there, books of third, books of expired, books of purged"
AT_BOOKS_WITH_ERIN = row(f"{AT_BOOKS}, erin plain, erin offline", "nobody")
EFFECTS = {
    "sign-out": row(HERE, "books of here, films of here"),
    "sign-out everywhere": LIVE_SESSIONS,
    "sign-out by an operator": LIVE_SESSIONS,
    "second factors reset by an operator": LIVE_SESSIONS,
    "first second factor": ALL_ELSEWHERE,
    "password change": ALL_ELSEWHERE,
    "password set by an operator": ALL,
    "user disabled": ALL,
    "user deleted": ALL,
    "client disabled": AT_BOOKS_WITH_ERIN,
    "client deleted": AT_BOOKS_WITH_ERIN,
    "consent withdrawn": row(AT_BOOKS, TOLD_BOOKS),
    "group lost": row(AT_BOOKS, TOLD_BOOKS),
    "client for other groups": row(
        f"{AT_BOOKS}, erin plain, erin offline", f"{TOLD_BOOKS}, books of erin"
    ),
    "code reuse": row("", "nobody"),
    "refresh reuse": row("", "nobody"),
    "refresh token revoked": row("", "nobody"),
}


@pytest.fixture
def world(app: Flask, clock: Clock) -> World:
    return World(app, clock)


@pytest.mark.parametrize("cause", EFFECTS)
def test_it_ends_what_it_names_and_nobody_elses(world: World, clock: Clock, cause: str) -> None:
    act: Callable[[Scene, Clock], object] = CAUSES[cause][0]
    act(world, clock)
    assert world.measure() == EFFECTS[cause]


def test_nothing_ends_by_itself(world: World) -> None:
    assert world.measure() == row("", "nobody")


@pytest.mark.parametrize(
    "cause", ["user disabled", "password change", "consent withdrawn", "group lost"]
)
def test_what_ended_before_is_told_once(world: World, clock: Clock, cause: str) -> None:
    """A second cause tells the clients no more of grants that the first one ended."""
    world.account(action="withdraw", client=world.client.client_id)
    with world.app.app_context():
        for delivery in db.session.scalars(select(LogoutDelivery)):
            db.session.delete(delivery)  # they were delivered, and purged
        db.session.commit()
    CAUSES[cause][0](world, clock)
    told = world.measure().split("told: ")[1].split(", ")
    assert not {"books of expired", "books of purged"} & set(told)
    assert ("films of here" in told) == (cause == "user disabled")


def test_one_session_of_several_is_ended_from_the_account(world: World) -> None:
    sid = next(sid for sid, name in world.names.items() if name == "there")
    world.account(action="end_session", session=sid)
    assert world.measure() == row("there session, there plain", "books of there")


def test_nobody_ends_somebody_elses_session(world: World) -> None:
    sid = next(sid for sid, name in world.names.items() if name == "erin")
    world.account(action="end_session", session=sid)
    assert world.measure() == row("", "nobody")


def test_all_others_are_ended_from_the_account(world: World) -> None:
    world.account(action="end_other_sessions")
    assert world.measure() == row(ELSEWHERE, "books of there, books of third")


def test_members_of_one_of_several_groups_keep_what_they_have(world: World) -> None:
    world.flask(
        "client",
        "update",
        world.client.client_id,
        "--set-groups",
        "boards",
        "--set-groups",
        "staff",
    )
    assert world.measure() == row("", "nobody")
