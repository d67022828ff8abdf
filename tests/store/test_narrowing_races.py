"""An operator narrows a client while people sign in to it: no grant slips through.

People authorize in loops, beside each other and without pausing, as the command runs. Afterwards
no grant that was decided on before the change may be found that the change should have ended, and
no code or token of one gives anything.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso import clock
from sso.extensions import db
from sso.models import Client, Grant
from sso.store import approvals, clients
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import change_api, make_api, make_client, make_user

PEOPLE = 4
ROUNDS = 4
SCOPE = "openid profile email offline_access"


class Crowd:
    """People who are signed in, and authorize in loops until they are told to stop."""

    def __init__(self, app: Flask, client: RelyingParty, groups: list[str], **request: Any) -> None:
        self.client, self.browsers = client, []
        self.request = {"scope": SCOPE, **request}
        for number in range(PEOPLE):
            make_user(app, f"person{number}@example.com", groups=groups)
            browser = Browser(app)
            browser.sign_in(f"person{number}@example.com")
            self.browsers.append(browser)

    @contextmanager
    def authorizing(self) -> Iterator[list[str]]:
        """Gives the list to which the codes are added."""
        stop, codes = Event(), []

        def loop(browser: Browser) -> None:
            while not stop.is_set():
                page = browser.authorize(self.client, **self.request)
                if "code" in page.parameters:
                    codes.append(page.code)
                    # As an application would; also so that codes don't pile up.
                    if len(codes) % 3 == 0:
                        self.client.exchange(page.code)

        with ThreadPoolExecutor(PEOPLE) as pool:
            running = [pool.submit(loop, browser) for browser in self.browsers]
            try:
                while len(codes) < PEOPLE and not any(one.done() for one in running):
                    stop.wait(0.01)
                yield codes
                stop.wait(0.05)
            finally:
                stop.set()
        for one in running:
            one.result()


def flask(client: RelyingParty, *arguments: str) -> None:
    command, *options = arguments
    args = ["client", command, client.client_id, *options]
    result = client.app.test_cli_runner().invoke(args=args)
    assert result.exit_code == 0, result.output


def alive(app: Flask, client: RelyingParty) -> set[Any]:
    with app.app_context():
        found = select(Grant.id).where(
            Grant.client_id == client.client_id, Grant.ended_at.is_(None)
        )
        return set(db.session.scalars(found))


def opened(client: RelyingParty) -> None:
    """As it was before the first round."""
    flask(client, "update", "--set-groups", "", "--no-require-mfa", "--set-scopes", SCOPE)
    flask(client, "enable")


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=SCOPE, first_party=True)


@pytest.fixture
def crowd(app: Flask, client: RelyingParty) -> Crowd:
    return Crowd(app, client, groups=["visitors"])


def test_another_group(app: Flask, client: RelyingParty, crowd: Crowd) -> None:
    for _ in range(ROUNDS):
        with crowd.authorizing() as codes:
            flask(client, "update", "--set-groups", "staff")
        assert alive(app, client) == set()
        assert {client.exchange(code).status_code for code in codes[-20:]} == {400}
        opened(client)


def test_disabled_and_enabled(app: Flask, client: RelyingParty, crowd: Crowd) -> None:
    for _ in range(ROUNDS):
        before: set[Any] = set()
        with crowd.authorizing():
            flask(client, "disable")
            before = alive(app, client)
            flask(client, "enable")
        assert before == set()


@pytest.mark.parametrize(
    "options", [("--require-mfa",), ("--set-scopes", "phone")], ids=lambda options: options[0]
)
def test_what_is_left_to_the_next_use(
    app: Flask, client: RelyingParty, crowd: Crowd, options: tuple[str, ...]
) -> None:
    for _ in range(ROUNDS):
        with crowd.authorizing() as codes:
            flask(client, "update", *options)
        some = codes[-20:]
        assert {client.exchange(code).status_code for code in some} == {400}
        opened(client)
        flask(client, "disable")  # ends the grants of this round
        flask(client, "enable")


def narrow_group(client: Client) -> None:
    client.set_client_metadata({**client.client_metadata, "groups": ["staff"]})


def narrow_scope(client: Client) -> None:
    client.set_client_metadata({**client.client_metadata, "scope": "openid"})


def require_mfa(client: Client) -> None:
    client.require_mfa = True


def disable(client: Client) -> None:
    client.disabled_at = clock.now()


def touch(client: Client) -> None:
    client.updated_at = clock.now()


def nothing(client: Client) -> None:
    """The near miss."""


@pytest.mark.parametrize("act", [narrow_group, narrow_scope, require_mfa, disable, touch, nothing])
def test_a_grant_is_stored_for_the_client_as_it_was_seen(
    app: Flask,
    client: RelyingParty,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Client], None],
) -> None:
    """The change is committed between the decision and the write."""
    make_user(app)
    browser = Browser(app)
    browser.sign_in()
    real = approvals.add
    stored: list[Any] = []

    def change() -> None:
        with app.app_context():
            row = clients.find(client.client_id)
            assert row is not None
            act(row)
            db.session.commit()

    def add(*seen: Any, **columns: Any) -> Any:
        if not stored:
            other = Thread(target=change)
            other.start()
            other.join()
        stored.append(real(*seen, **columns))
        return stored[-1]

    monkeypatch.setattr(approvals, "add", add)
    browser.authorize(client, scope=SCOPE)
    assert stored[0] is (act is nothing)


DOCS = "https://docs.example"
SCOPES = {"read": "Read documents", "write": "Change documents"}


@pytest.mark.parametrize("change", [{"scopes": {"read": "Read"}}, {"groups": ["staff"]}], ids=str)
def test_an_api_is_narrowed(app: Flask, change: dict[str, Any]) -> None:
    """A change of an API counts for the codes that are issued meanwhile."""
    make_api(app, DOCS, scopes=SCOPES)
    client = make_client(app, scope=SCOPE, first_party=True, apis=[DOCS])
    crowd = Crowd(app, client, ["visitors"], resource=DOCS, scope="openid read write")
    for _ in range(ROUNDS):
        with crowd.authorizing() as codes:
            change_api(app, DOCS, **change)
        for code in codes[-20:]:
            answer = client.exchange(code).get_json()
            assert "write" not in answer.get("scope", "")
        change_api(app, DOCS, scopes=SCOPES, groups=[])


def test_apis_and_their_clients_change_beside_each_other(app: Flask) -> None:
    """Everybody locks in one order: no deadlock, and nothing is lost."""
    make_api(app, DOCS)
    clients = [make_client(app, apis=[DOCS]) for _ in range(3)]

    def rename(number: int) -> None:
        for turn in range(10):
            change_api(app, DOCS, name=f"Documents {number} {turn}")

    def register(client: RelyingParty) -> None:
        for _ in range(10):
            flask(client, "update", "--set-apis", f"{DOCS}=read")
            flask(client, "update", "--set-apis", DOCS)

    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(rename, number) for number in range(2)]
        running += [pool.submit(register, client) for client in clients]
    for one in running:
        one.result()
