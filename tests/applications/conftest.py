"""One server for all applications, an administrator and somebody else."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.applications.software import Application
from tests.support.chrome import chrome as chrome
from tests.support.chrome import playwright as playwright
from tests.support.chrome import press as press
from tests.support.processes import Server

PASSWORD = "correct horse battery"
ADMINS = 'it\'s "ops"'  # a preset that quotes badly does not work
expect.set_options(timeout=60_000)  # applications start slowly, and several at a time

Connect = Callable[..., Application]


@dataclass(frozen=True)
class Person:
    name: str
    email: str


DANA = Person("Dana Demo", "dana@example.com")  # of the administrators' group
SAM = Person("Sam Sample", "sam@example.com")
DESKS = {DANA: "north-1", SAM: "south-2"}  # an attribute that the operator defined


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), workers=1).running() as server:
        server.flask("attribute", "define", "desk", "--type", "string")
        for person, groups in ((DANA, [ADMINS, "staff"]), (SAM, ["staff"])):
            create = ["user", "create", "--email", person.email, "--name", person.name]
            memberships = [word for group in groups for word in ("--group", group)]
            create += ["--set-attribute", f"desk={DESKS[person]}", *memberships]
            server.flask(*create, "--email-verified", "--password-stdin", stdin=PASSWORD)
        yield server


@pytest.fixture
def connect(server: Server, tmp_path: Path) -> Connect:
    """Register an application by its preset: `connect(name, *options)`."""
    return lambda *arguments: Application(tmp_path, server, *arguments)


def give_roles_and_desk(app: Application, server: Server) -> None:
    """Register roles of the application, and a claim of its own."""
    server.flask(
        *("client", "update", app.registered["client_id"]),
        *("--add-role", f"admin={ADMINS}", "--add-role", "editor=staff"),
        *("--add-claim", "desk=attribute:desk"),
    )


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context()
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def sign_in(page: Page, person: Person) -> None:
    """On the server's pages; ends at the application."""
    page.get_by_label("Email").fill(person.email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in"))
    allow = page.get_by_role("button", name="Allow")
    if allow.is_visible():
        press(allow)


def sign_out(page: Page) -> None:
    """On the server's page, which asks first; ends at the application."""
    expect(page.get_by_role("heading")).to_have_text("Sign out?")
    press(page.get_by_role("button", name="Sign out"))


def shown(page: Page) -> Any:
    """The JSON that an application shows."""
    return json.loads(page.locator("body").inner_text())


def check_example(app: Application, page: Page) -> None:
    """What the examples for libraries have in common: three addresses and a profile in JSON."""
    page.goto(f"{app.url}/sign-in")
    sign_in(page, DANA)
    expect(page).to_have_url(f"{app.url}/")
    user = shown(page)
    assert user.pop("id")
    assert user == {"name": DANA.name, "email": DANA.email, "groups": [ADMINS, "staff"]}
    page.goto(f"{app.url}/sign-out")
    expect(page).to_have_url(re.compile(rf"{re.escape(app.url)}/(\?state=.*)?$"))  # Authlib's
    assert not shown(page)
    page.goto(f"{app.url}/sign-in")
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
