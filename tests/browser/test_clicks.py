"""How many clicks an administrator needs from the overview: no more than these."""

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import EMAIL, Site, press
from tests.browser.test_accessibility import administer


class Hand:
    """Clicks and counts. Typing is not counted: every product asks for the same."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page, self.site, self.clicks = page, site, 0

    def click(self, name: str, role: str = "link") -> None:
        press(self.page.locator("main, nav").get_by_role(role, name=name, exact=True).first)  # type: ignore[arg-type]  # a literal
        self.clicks += 1

    def press(self, name: str) -> None:
        self.click(name, "button")

    def type(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).fill(text)

    def sees(self, text: str) -> None:
        expect(self.main).to_contain_text(text)

    @property
    def main(self) -> Locator:
        return self.page.locator("main")


@pytest.fixture(scope="module")
def state(chrome: Browser, site: Site) -> Iterator[str]:
    """The cookies of an administrator."""
    context = chrome.new_context()
    administer(context.new_page(), site)
    yield context.storage_state()  # type: ignore[misc]  # handed on as it is
    context.close()


def invite(hand: Hand) -> None:
    hand.click("People")
    hand.click("Invite a person")
    hand.type("Email", f"erin-{uuid4().hex}@example.com")
    hand.type("Name", "Erin Example")
    hand.type("Groups, one per line", "engineers")
    hand.press("Send the invitation")
    hand.sees("The account was created")
    hand.sees("engineers")


def connect(hand: Hand) -> None:
    hand.click("Applications")
    hand.click("Register an application")
    press(hand.page.locator('a[href$="preset=grafana"]'))
    hand.clicks += 1
    hand.page.locator("#url").fill("https://grafana.example.com")
    hand.press("Register")
    hand.sees("Client secret")
    hand.sees("https://grafana.example.com")


def find_out(hand: Hand) -> None:
    other = hand.page.context.new_page()
    other.goto(hand.site.request(redirect_uri="https://wrong.example/"))
    shown = re.search(r"[0-9a-z]{4}-[0-9a-z]{4}", other.locator("main").inner_text())
    assert shown
    other.close()
    hand.click("Refused requests")
    hand.type("Error ID", shown[0])
    hand.press("Search")
    hand.sees("Cause")
    hand.sees("What to do")
    hand.sees("https://wrong.example/")


def _dana(hand: Hand) -> None:
    hand.click("People")
    hand.type("Beginning of the email or name, or an ID", EMAIL)
    hand.press("Search")
    hand.click(EMAIL)


def offboard(hand: Hand) -> None:
    _dana(hand)
    hand.click("Disable the account")
    hand.sees("This ends")
    hand.press("Disable the account")
    hand.sees("The account was disabled.")


def rotate(hand: Hand) -> None:
    hand.click("Applications")
    hand.click("Sample application")
    hand.click("New secret")
    hand.press("Make a new secret")
    hand.sees("shown only once")


def restore(hand: Hand) -> None:
    _dana(hand)
    hand.click("Reset the second factors")
    hand.press("Reset the second factors")
    hand.sees("The second factors were removed.")


JOURNEYS: dict[Callable[[Hand], None], int] = {
    invite: 3, connect: 4, find_out: 2, restore: 5, offboard: 5, rotate: 4,
}  # fmt: skip


def test_no_journey_takes_more_clicks(chrome: Browser, site: Site, state: str) -> None:
    context, taken = chrome.new_context(storage_state=state), {}
    page = context.new_page()
    for journey in JOURNEYS:
        page.goto(f"{site.server.base_url}/admin")
        hand = Hand(page, site)
        journey(hand)
        taken[journey] = hand.clicks
    context.close()
    assert taken == JOURNEYS
