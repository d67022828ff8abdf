"""axe finds no violation on any page, light and dark, left to right and right to left."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID, uuid4

import pyotp
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser.conftest import EMAIL, PASSWORD, Site, press
from tests.support.logos import PAGE, PNG

AXE = Axe()
OPTIONS = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],  # every element that passes would take half the time
}


@pytest.fixture(
    params=[pytest.param(("en", "light"), marks=pytest.mark.exhaustive), ("ar", "dark")],
    ids=["en light", "ar dark"],
)
def page(request: pytest.FixtureRequest, chrome: Browser) -> Iterator[Page]:
    locale, scheme = request.param
    context = chrome.new_context(locale=locale, color_scheme=scheme, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def check(page: Page) -> None:
    """Fail with what axe says."""
    results = AXE.run(page, options=OPTIONS)
    assert len(results.response["passes"]) > 10
    assert results.violations_count == 0, f"{page.url}\n{results.generate_report()}"


def fill(page: Page, password: str = PASSWORD) -> None:
    page.locator("#email").fill(EMAIL)
    page.locator("#password").fill(password)
    press(page.locator("form button.primary"))


def test_the_way_to_an_application(page: Page, site: Site) -> None:
    page.goto(site.request(state="x", prompt="consent"))
    check(page)
    fill(page, "not the password")
    check(page)
    fill(page)
    assert "/consent" in page.url
    check(page)
    page.goto(site.request(state="x", prompt="select_account"))
    check(page)
    page.goto(site.request(state="x", prompt="login"))
    check(page)


def test_the_account_and_the_way_out(page: Page, site: Site) -> None:
    base = site.server.base_url
    page.goto(f"{base}/sign-in")
    fill(page)
    check(page)
    for width in (320, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # By keyboard: the form opens at its row.
    page.locator("#password summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#old_password").is_visible()
    page.locator("button[value=change_password]").evaluate(
        "button => button.form.noValidate = true"
    )
    press(page.locator("button[value=change_password]"))
    assert page.locator("#old_password-error").is_visible()
    check(page)
    page.goto(f"{base}/account/confirm?action=end_all_sessions")
    check(page)
    page.goto(f"{base}/sign-out")
    check(page)
    press(page.locator("button[value=sign_out]"))
    check(page)


def test_a_page_that_names_the_application(page: Page, site: Site) -> None:
    page.goto(site.request(redirect_uri="https://elsewhere.example/cb"))
    assert page.locator("dd code").first.inner_text() in page.content()
    check(page)


@pytest.mark.parametrize("path", ["/oauth2/authorize", "/nowhere", "/sign-in?resume=x"])
def test_pages_that_say_what_is_wrong(page: Page, site: Site, path: str) -> None:
    page.goto(f"{site.server.base_url}{path}")
    check(page)


def test_the_other_pages_of_an_account(page: Page, site: Site) -> None:
    base = site.server.base_url
    page.goto(f"{base}/sign-in")
    fill(page)
    for path in ("/email", "/picture", "/factors", "/factors/totp", "/activity"):
        page.goto(f"{base}/account{path}")
        assert page.url.endswith(path)
        check(page)
    for data, path in ((PAGE, "/picture"), (PNG, "")):
        page.goto(f"{base}/account/picture")
        file = {"name": "me.png", "mimeType": "image/png", "buffer": data}
        page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]  # a dict
        press(page.locator("button.primary"))
        assert page.url.partition("?")[0].endswith(f"/account{path}")
        check(page)
    width = "images => images.map(image => image.naturalWidth)"
    assert page.locator("img.avatar").evaluate_all(width) == [256, 256]


ADMIN_PAGES = ("", "/checks", "/people?q=a", "/person/invite", "/groups", "/attributes",
               "/attribute/new", "/applications",
               "/application/new", "/application/by-hand", "/apis", "/api/new", "/refusals",
               "/audit", "/webhooks", "/webhook/new", "/emails", "/settings", "/providers",
               "/appearance",
               "/people/import", "/person/new", "/sessions", "/mcp-servers",
               "/keys", "/keys/rotate", "/api-tokens", "/api-token/new")  # fmt: skip


def administer(page: Page, site: Site) -> tuple[str, str, str]:
    """Sign in a new administrator with a new factor; gives id, email, and the factor's secret."""
    base, email = site.server.base_url, f"ada-{uuid4().hex}@example.com"
    made = site.server.flask(
        "user", "create", "--email", email, "--name", "Ada", "--admin", "--password-stdin",
        "--json", stdin=PASSWORD + "\n",
    )  # fmt: skip
    page.goto(f"{base}/sign-in")
    page.locator("#email").fill(email)
    page.locator("#password").fill(PASSWORD)
    press(page.locator("form button.primary"))
    page.goto(f"{base}/admin/people?q=ada")
    assert "/account/factors?at=" in page.url
    check(page)
    page.goto(page.url.replace("/factors?", "/factors/totp?"))
    secret = (page.locator(".secret").text_content() or "").replace(" ", "")
    page.locator("#code").fill(pyotp.TOTP(secret).now())
    press(page.locator("form button.primary"))
    press(page.locator("a.primary"))
    assert page.url == f"{base}/admin/people?q=ada"
    return json.loads(made)["id"], email, secret


@pytest.mark.exhaustive
def test_administration(page: Page, site: Site) -> None:
    base = site.server.base_url
    user_id, *_ = administer(page, site)
    person = f"/person?id={user_id}"
    page.goto(f"{base}/admin/groups")
    page.locator("#name").fill(f"group {user_id}")
    press(page.locator("form button.primary"))
    group = page.url.partition("/admin")[2].replace("done=created&", "")
    api = json.loads(site.server.flask(
        "api", "create", "--identifier", f"https://{user_id}.example", "--name", "Orders",
        "--scope", "read=Read your orders", "--translation", "ar:read=اقرأ طلباتك",
        "--group", "buyers", "--introspection", "--json",
    ))["api_id"]  # fmt: skip
    linked = uuid4()
    file = site.server.folder / "sso.db"
    with closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO identities (id, user_id, provider, issuer, subject, linked_at)"
            " VALUES (?, ?, 'corp', 'https://corp.example', ?, '2026-01-01 00:00:00')",
            (linked.hex, UUID(user_id).hex, linked.hex * 6),
        )
    site.server.flask(
        "attribute", "define", f"a{linked.hex}", "--type", "choice", "--choice", "gold",
        "--title", "Plan", "--self-service",
    )  # fmt: skip
    site.server.flask("attribute", "define", f"b{linked.hex}", "--type", "list")
    client_id = site.server.register(
        "Wiki", "https://wiki.example/cb", "--scim-url", "https://wiki.example/", "--scim-everyone"
    )["client_id"]
    provisioned = f"/application/provisioning?id={client_id}"
    edits = (f"/attribute?name=a{linked.hex}", person.replace("?", "/attributes?"),
             person.replace("?", "/edit?"), person.replace("?", "/picture?"), group,
             group.replace("?", "/rename?"),
             group.replace("?", "/delete?"), group.replace("?", "/owners?"),
             f"{person.replace('?', '/unlink?')}&identity={linked}", f"/api?id={api}",
             f"/api/edit?id={api}", f"/api/secret?id={api}",
             f"/api/act?id={api}&do=delete", provisioned, provisioned.replace("?", "/test?"),
             provisioned.replace("?", "/token?"),
             provisioned.replace("?", "/deliveries?"))  # fmt: skip
    for path in (*ADMIN_PAGES, person, *edits):
        page.goto(f"{base}/admin{path}")
        assert page.url == f"{base}/admin{path}"
        check(page)
        for width in (375, 768, 1600):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{base}/admin/audit")
    heights = page.evaluate(
        "[...document.querySelectorAll('.trail tbody tr')].map(r => r.offsetHeight)"
    )
    assert 0 < max(heights) < 48, "one line for each event"
    page.locator(".trail summary").first.click()
    assert page.locator(".trail .difference").first.is_visible()
    check(page)


# Whether what has the focus shows it, and what it is.
FOCUS = """() => {
  const it = document.activeElement, style = getComputedStyle(it);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  return [it.id, it.textContent.trim(), ring || style.boxShadow !== "none"];
}"""


def tab_to(page: Page, what: str) -> None:
    """Press the tab key until this has the focus: a field by its id, else by its first words."""
    for _ in range(120):
        page.keyboard.press("Tab")
        id_, words, is_visible = page.evaluate(FOCUS)
        assert is_visible or page.evaluate("document.activeElement === document.body"), words
        if id_ == what or words.startswith(what):
            return
    raise AssertionError(f"{what} is not reached on {page.url}")


def follow(page: Page, what: str, key: str = "Enter") -> None:
    """Reach a link or button by the tab key, and press another key."""
    tab_to(page, what)
    with page.expect_navigation():
        page.keyboard.press(key)


def write(page: Page, **values: str) -> None:
    for field, text in values.items():
        tab_to(page, field)
        page.keyboard.type(text)


def choose(page: Page, field: str, option: str) -> None:
    """Choose an option of a list by the arrow keys."""
    tab_to(page, field)
    for _ in range(20):
        if page.locator(f"#{field}").input_value() == option:
            return
        page.keyboard.press("ArrowDown")
    raise AssertionError(f"{field} has no {option}")


def test_administration_by_keyboard_alone(chrome: Browser, site: Site) -> None:
    page = chrome.new_context(locale="en", reduced_motion="reduce").new_page()
    _, email, secret = administer(page, site)

    def forget(what: str) -> None:
        file = site.server.folder / "sso.db"
        with closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as connection:
            connection.execute(what)

    def show_factor() -> None:
        forget("UPDATE totp_secrets SET last_step = 0")  # so that the code counts again
        write(page, code=pyotp.TOTP(secret).now())
        follow(page, "Continue", "Enter")

    follow(page, "Your account")
    follow(page, "Sign out")
    follow(page, "Sign out", "Space")
    page.goto(f"{site.server.base_url}/sign-in")
    write(page, email=email, password=PASSWORD)
    follow(page, "Sign in", "Space")
    show_factor()
    follow(page, "Administration")
    follow(page, "People")
    invited = f"erin-{uuid4().hex}@example.com"
    follow(page, "Invite a person")
    write(page, email=invited, name="Erin")
    # Meanwhile the factor gets too old; what was typed is kept.
    forget("UPDATE browser_sessions SET second_factor_at = '2026-01-01 00:00:00'")
    follow(page, "Send the invitation", "Space")
    show_factor()
    assert page.url.endswith("/admin/person/invite")
    assert page.locator("#email").input_value() == invited
    follow(page, "Send the invitation", "Space")
    assert "The account was created" in page.content()
    follow(page, "People")
    write(page, q=invited)
    choose(page, "state", "invited")
    follow(page, "Search")
    follow(page, invited)
    follow(page, "Reset the second factors")
    follow(page, "Reset the second factors", "Space")
    assert "The second factors were removed." in page.content()
    follow(page, "Applications")
    follow(page, "Register an application")
    follow(page, "Register by hand")
    write(page, client_name="Wiki", redirect_uris="https://wiki.example/callback")
    follow(page, "Register", "Space")
    assert "sso_cs_" in page.content()
    follow(page, "Signing keys")
    follow(page, "Retire")
    follow(page, "Retire the key")
    assert "The key was retired." in page.content()
    follow(page, "Your account")
    follow(page, "Sign out")
    follow(page, "Sign out", "Space")
    page.goto(f"{site.server.base_url}/admin")
    assert "/sign-in?" in page.url
    page.context.close()
