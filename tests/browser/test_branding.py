"""A company's own pages in a real browser: readable, complete, and without anything blocked."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, Route

from sso.config import images
from tests.browser.conftest import EMAIL, PASSWORD, TORN, press
from tests.browser.test_accessibility import check
from tests.support.actors import challenge_of
from tests.support.logos import JPEG, PNG, SVG, WEBP_LOSSLESS, WEBP_LOSSY
from tests.support.processes import Server

CALLBACK = "http://127.0.0.1/callback"
PKCE = {"code_challenge": challenge_of("x" * 43), "code_challenge_method": "S256"}
LOGOS = {
    "PNG": PNG,
    "JPEG": JPEG,
    "Lossy": WEBP_LOSSY,
    "Lossless": WEBP_LOSSLESS,
    "SVG": SVG,
    "None": b"",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("branded")
    (folder / "logo").write_bytes(SVG)
    environ = {
        "SSO_NAME": "Acme & <i>Söhne</i>",
        "SSO_LOGO_FILE": str(folder / "logo"),
        "SSO_ACCENT_COLOR": "#f58220",
        "SSO_SUPPORT_URL": "mailto:help@acme.example",
        "SSO_PRIVACY_URL": "https://acme.example/privacy",
        "SSO_TERMS_URL": "https://acme.example/terms",
    }
    with Server(folder, 2, **environ).running(TORN) as running:
        user = ["user", "create", "--email", EMAIL, "--name", "Dana Demo"]
        running.flask(*user, "--password-stdin", stdin=PASSWORD + "\n")
        yield running


@pytest.fixture(scope="module")
def client_id(server: Server) -> str:
    """One application for each type of logo, and one without; with home URLs."""
    clients = [
        {
            "client_id": name.lower(),
            "client_name": f"{name} & Donaudampfschifffahrt",
            "redirect_uris": [CALLBACK],
            "public": True,
            "home_url": f"https://{name.lower()}.example/",
            "logo": images.parse(data, 10_000).data_url if data else "",
        }
        for name, data in LOGOS.items()
    ]
    path = server.folder / "clients.json"
    path.write_text(json.dumps({"format": 1, "clients": clients}))
    server.flask("apply", str(path))
    return "svg"


@pytest.fixture(
    params=[pytest.param(("en", "light", 1280), marks=pytest.mark.exhaustive), ("ar", "dark", 320)],
    ids=["en light", "ar dark"],
)
def page(request: pytest.FixtureRequest, chrome: Browser) -> Iterator[Page]:
    locale, scheme, width = request.param
    context = chrome.new_context(
        locale=locale,
        color_scheme=scheme,
        reduced_motion="reduce",
        viewport={"width": width, "height": 800},
    )
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    yield opened
    context.close()
    assert complaints == []


def look(page: Page, count: int) -> None:
    """The page is accessible, its images are there, and nothing is wider than the window."""
    check(page)
    widths = page.evaluate("[...document.images].map(one => one.complete && one.naturalWidth)")
    assert len(widths) == count
    assert all(widths), widths
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.exhaustive
def test_the_way_to_an_application_and_the_account(
    page: Page, server: Server, client_id: str
) -> None:
    request = {"response_type": "code", "client_id": client_id, "redirect_uri": CALLBACK, **PKCE}
    page.goto(f"{server.base_url}/oauth2/authorize?{urlencode({**request, 'state': 'x'})}")
    look(page, 2)
    page.locator("#email").fill(EMAIL)
    page.locator("#password").fill(PASSWORD)
    press(page.locator("form button.primary"))
    assert "/consent" in page.url
    look(page, 2)
    page.goto(f"{server.base_url}/account")
    look(page, 6)
    tiles = page.locator(".launcher a")
    assert [tile.get_attribute("href") for tile in tiles.all()] == [
        f"https://{name.lower()}.example/" for name in sorted(LOGOS, key=str.casefold)
    ]
    page.goto(f"{server.base_url}/sign-out")
    assert "Acme & <i>Söhne</i>" in page.locator("h1").inner_text()


ELSEWHERE = "https://elsewhere.example/"
SCRIPTED = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 4" onload="run()">
<script>function run() {{ document.documentElement.setAttribute("ran", "") }} run()</script>
<script href="{ELSEWHERE}x.js"/><style>@import "{ELSEWHERE}x.css";</style>
<image href="{ELSEWHERE}x.png"/><use href="{ELSEWHERE}x.svg#a"/>
<rect id="drawn" width="8" height="4" fill="url({ELSEWHERE}x.svg#b)"/></svg>""".encode()
POLYGLOT = PNG + b"<!doctype html><script>document.title = 'ran'</script>"


@pytest.mark.parametrize("body", [SCRIPTED, POLYGLOT], ids=["SVG", "PNG and HTML"])
def test_a_logo_runs_and_loads_nothing(chrome: Browser, server: Server, body: bytes) -> None:
    """Even one that got past the check; neither in a page nor opened by itself."""
    context = chrome.new_context()
    requests: list[str] = []

    def elsewhere(route: Route) -> None:
        requests.append(route.request.url)
        route.abort()

    context.route(f"{ELSEWHERE}**", elsewhere)
    page = context.new_page()
    page.goto(f"{server.base_url}/sign-in")
    url = page.locator(".mark img").get_attribute("src")
    assert url

    def replace(route: Route) -> None:
        answer = route.fetch()
        headers = answer.headers | ({} if body == SCRIPTED else {"content-type": "image/png"})
        headers.pop("content-encoding", None)
        route.fulfill(status=200, headers=headers, body=body)

    context.route(f"**{url}", replace)
    page.goto(f"{server.base_url}/sign-in")
    assert page.evaluate("document.querySelector('.mark img').naturalWidth") > 0
    page.goto(server.origin + url)
    if body == SCRIPTED:
        assert page.locator("#drawn").count() == 1
    assert page.locator("[ran]").count() == 0
    assert "ran" not in page.title()
    assert page.evaluate("document.contentType") == (
        "image/svg+xml" if body == SCRIPTED else "image/png"
    )
    page.wait_for_timeout(300)
    assert requests == []
    context.close()
