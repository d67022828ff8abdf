"""`flask demo`: everything from nothing, in one command."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import MetaData, Table, insert

from sso import clock, create_app
from sso.checkup.sign_in import Browser
from sso.demo import device_client
from sso.extensions import db
from sso.store import migrations
from tests.support.factories import ensure_keys
from tests.support.processes import ROOT, free_port, wait_for
from tests.support.programs import Program


class Demo:
    """`flask demo --json` in a folder; what it prints and logs is beside that."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.printed, self.log = folder.with_suffix(".json"), folder.with_suffix(".log")
        self.printed.unlink(missing_ok=True)
        self.program = Program(
            "flask",
            ["demo", "--json", "--folder", str(folder), *arguments],
            cwd=ROOT, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            stdout=self.printed, stderr=self.log,
        )  # fmt: skip

    def line(self, number: int) -> Any:
        """Wait for this line of its output, the first one being 0."""

        def is_there() -> bool:
            assert self.program.poll() is None, self.log.read_text()
            return self.printed.read_text().count("\n") > number

        wait_for(is_there, "the demo")
        return json.loads(self.printed.read_text().splitlines()[number])

    def end(self) -> None:
        """As Ctrl-C does."""
        self.program.send_signal(signal.SIGINT)
        try:
            self.program.wait(60)
        except subprocess.TimeoutExpired:
            self.program.send_signal(signal.SIGABRT)  # writes where each of its threads is
            self.program.wait(20)
        assert self.program.returncode == 0, self.log.read_text()


@contextmanager
def demo(folder: Path, port: int, client_port: int) -> Iterator[dict[str, str]]:
    """Run it; gives what it printed first."""
    started = Demo(folder, "--port", str(port), "--client-port", str(client_port))
    try:
        yield started.line(0)
    finally:
        started.end()


def test_a_device_in_the_terminal(tmp_path: Path) -> None:
    ports = ("--port", str(free_port()), "--client-port", str(free_port()))
    started = Demo(tmp_path / "demo", "--device", *ports)
    try:
        told, codes = started.line(0), started.line(1)
        browser = Browser(told["server"], "https://no.example/")
        page = browser.submit(browser.open(codes["verification_uri_complete"]), {})
        page = browser.submit(page, {"email": told["email"], "password": told["password"]})
        assert page.response is not None
        assert "Sample device" in page.response.text
        browser.submit(page, {"decision": "allow"})
        assert started.line(2) == {"signed_in": "Dana Demo"}
    finally:
        started.end()


def test_the_qr_code_of_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    device_client.show(
        {
            "user_code": "BCDF-GHJK",
            "verification_uri": "http://localhost:5000/device",
            "verification_uri_complete": "http://localhost:5000/device?user_code=BCDF-GHJK",
        },
        as_json=False,
    )
    printed = capsys.readouterr().out
    assert "\u2588" in printed or "\u2580" in printed
    assert "open http://localhost:5000/device\n  and enter BCDF-GHJK" in printed


def ask_for_a_new_password(told: dict[str, str]) -> None:
    browser, address = requests.Session(), told["server"] + "/forgotten-password"
    page = browser.get(address, timeout=60)
    csrf_token, *_ = re.findall('name="csrf_token"[^>]* value="([^"]+)"', page.text)
    browser.post(address, {"csrf_token": csrf_token, "email": told["email"]}, timeout=60)


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@contextmanager
def taken(family: socket.AddressFamily, address: str) -> Iterator[int]:
    """A port at which something else listens, on this address alone."""
    with socket.socket(family) as other:
        other.bind((address, 0))
        other.listen()
        yield other.getsockname()[1]


def test_it_runs_twice_and_gives_way_to_others(tmp_path: Path) -> None:
    """To one that listens on IPv4 alone, then to one on IPv6 alone."""
    log, on_ipv4 = tmp_path / "demo.log", (socket.AF_INET, "127.0.0.1")
    for listener in (on_ipv4, (socket.AF_INET6, "::1") if has_ipv6() else on_ipv4):
        with (
            taken(*listener) as port,
            demo(tmp_path / "demo", port, free_port()) as told,
        ):
            assert f":{port}/" not in told["server"]
            # A name, on which browsers allow passkeys; and all that it means is the demo's.
            assert told["server"].startswith("http://localhost:")
            assert told["open"].startswith("http://localhost:")
            for address in ("127.0.0.1", "[::1]" if has_ipv6() else "127.0.0.1"):
                there = told["server"].replace("localhost", address).removesuffix("/api/auth")
                assert requests.get(f"{there}/readyz", timeout=60).ok
            assert told["password"]
            page = requests.get(told["open"], timeout=60)
            assert "Sign in" in page.text
            begun = requests.get(told["open"] + "login", timeout=60)
            assert begun.url.startswith(told["server"] + "/sign-in?resume=")
            assert "data-passkeys" in begun.text or "passkey" in begun.text
            assert "Sample application" in begun.text
            ask_for_a_new_password(told)
            wait_for(lambda: "/new-password?token=" in log.read_text(), "the mail")
        with pytest.raises(requests.ConnectionError):
            requests.get(told["open"], timeout=5)


def test_a_second_one_in_the_same_folder_leaves_the_first_alone(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    printed, error = tmp_path / "second.json", tmp_path / "second.log"
    with demo(folder, free_port(), free_port()) as told:
        second = Program(
            "flask", ["demo", "--json", "--folder", str(folder)],
            cwd=ROOT, env=os.environ, stdout=printed, stderr=error,
        )  # fmt: skip
        assert second.wait(60) == 1
        said = error.read_text()
        assert (printed.read_text(), said.count("\n")) == ("", 1)
        assert f"a demo runs in {folder} already" in said
        assert "--folder" in said
        begun = requests.get(told["open"] + "login", timeout=60)
        assert begun.url.startswith(told["server"] + "/sign-in?resume=")


def test_a_folder_of_an_older_version(tmp_path: Path) -> None:
    """There the sample application is registered at 127.0.0.1, and so are its sessions."""
    folder = tmp_path / "demo"
    app = create_app({"SSO_BASE_URL": "http://127.0.0.1:5000/api/auth"}, folder)
    with app.app_context():
        migrations.upgrade(revision="0006")
        ensure_keys(app.config["SECRET_KEY"])
        metadata = {
            "client_name": "Sample application",
            "redirect_uris": ["http://127.0.0.1:8000/callback"],
            "scope": "openid profile email",
        }
        row = {
            "client_id": "sample",
            "secret_digest": "",
            "client_metadata": json.dumps(metadata),
            "created_at": clock.now(),
            "updated_at": clock.now(),
        }
        # As it was then: today's model has more columns.
        clients = Table("clients", MetaData(), autoload_with=db.engine)
        db.session.execute(insert(clients).values(row))
        db.session.commit()
        db.engine.dispose()
    with demo(folder, free_port(), free_port()) as told:
        begun = requests.get(told["open"] + "login", timeout=60)
        assert begun.url.startswith(told["server"] + "/sign-in?resume=")
