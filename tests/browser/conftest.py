"""A real browser, a real server, and the sample application."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import flask
import pytest
from playwright.sync_api import Browser, Page, expect
from werkzeug.serving import make_server

from sso.demo.application import create_sample_application
from tests.browser.torn import torn
from tests.support.chrome import chrome as chrome
from tests.support.chrome import playwright as playwright
from tests.support.chrome import press as press
from tests.support.processes import Server, free_port

PASSWORD = "correct horse battery"
EMAIL = "dana@example.com"
TORN = "tests.browser.torn:app"
expect.set_options(timeout=60_000)  # 5 s are little where many tests share two cores


@dataclass(frozen=True)
class Site:
    """The server, the sample application that signs in at it, and a client that echoes."""

    server: Server
    sample: str
    echo: str
    echo_client_id: str

    def request(self, **more: str) -> str:
        """The address of an authorization request of the echoing client."""
        values = {
            "response_type": "code",
            "client_id": self.echo_client_id,
            "redirect_uri": self.echo,
            **more,
        }
        return f"{self.server.base_url}/oauth2/authorize?{urlencode(values)}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    port = free_port()
    with Server(tmp_path_factory.mktemp("server")).running(TORN) as server:
        user = ["user", "create", "--email", EMAIL, "--name", "Dana Demo"]
        server.flask(*user, "--password-stdin", stdin=PASSWORD + "\n")
        origin = f"http://127.0.0.1:{port}"
        client = server.register("Sample application", f"{origin}/callback")
        echo = server.register("Echo", f"{origin}/echo")
        app = create_sample_application(
            issuer=server.base_url,
            client_id=client["client_id"],
            client_secret=client["client_secret"],
            secret_key="only for tests",
        )
        app.add_url_rule("/echo", "echo", lambda: dict(flask.request.form), methods=["GET", "POST"])
        sample = make_server("127.0.0.1", port, torn(app), threaded=True)
        thread = threading.Thread(target=sample.serve_forever, daemon=True)
        thread.start()
        yield Site(server, f"{origin}/", f"{origin}/echo", echo["client_id"])
        sample.shutdown()
        thread.join(10)


@pytest.fixture(params=[True, False], ids=["with scripts", "without scripts"])
def scripts(request: pytest.FixtureRequest) -> bool:
    """Whether the browser runs scripts."""
    return bool(request.param)


WITHOUT_SCRIPTS = pytest.mark.parametrize(
    "scripts",
    [pytest.param(True, id="with scripts", marks=pytest.mark.exhaustive),
     pytest.param(False, id="without scripts")],
    indirect=True,
)  # fmt: skip


@pytest.fixture
def page(chrome: Browser, scripts: bool) -> Iterator[Page]:
    """A page that fails the test when anything is blocked by a policy."""
    context = chrome.new_context(java_script_enabled=scripts)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    yield opened
    context.close()
    assert [text for text in complaints if "Content Security Policy" in text] == []
