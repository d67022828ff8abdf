"""`flask demo`: everything from nothing, in one command."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def demo(folder: Path, port: int, client_port: int) -> Iterator[dict[str, str]]:
    """Run it; gives what it printed, and ends it as Ctrl-C does."""
    log = folder.with_suffix(".log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "flask", "demo", "--json", "--folder", str(folder)),
            *("--port", str(port), "--client-port", str(client_port)),
        ],
        cwd=ROOT, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE, stderr=log, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # writes where each of its threads is
            process.communicate(timeout=20)
        log.close()
    assert process.returncode == 0, folder.with_suffix(".log").read_text()


def test_a_device_in_the_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flask", "demo", "--json", "--device"]
    command += ["--folder", str(tmp_path / "demo"), "--port", str(free_port())]
    command += ["--client-port", str(free_port())]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        told = json.loads(process.stdout.readline())
        codes = json.loads(process.stdout.readline())
        browser = Browser(told["server"], "https://no.example/")
        page = browser.submit(browser.open(codes["verification_uri_complete"]), {})
        page = browser.submit(page, {"email": told["email"], "password": told["password"]})
        assert page.response is not None
        assert "Sample device" in page.response.text
        browser.submit(page, {"decision": "allow"})
        assert json.loads(process.stdout.readline()) == {"signed_in": "Dana Demo"}
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


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
    page = browser.get(address, timeout=10)
    csrf_token, *_ = re.findall('name="csrf_token"[^>]* value="([^"]+)"', page.text)
    browser.post(address, {"csrf_token": csrf_token, "email": told["email"]}, timeout=10)


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
                assert requests.get(f"{there}/readyz", timeout=10).ok
            assert told["password"]
            page = requests.get(told["open"], timeout=10)
            assert "Sign in" in page.text
            begun = requests.get(told["open"] + "login", timeout=10)
            assert begun.url.startswith(told["server"] + "/sign-in?resume=")
            assert "data-passkeys" in begun.text or "passkey" in begun.text
            assert "Sample application" in begun.text
            ask_for_a_new_password(told)
            wait_for(lambda: "/new-password?token=" in log.read_text(), "the mail")
        with pytest.raises(requests.ConnectionError):
            requests.get(told["open"], timeout=5)


def test_a_second_one_in_the_same_folder_leaves_the_first_alone(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "flask", "demo", "--json", "--folder"]
    with demo(folder, free_port(), free_port()) as told:
        second = subprocess.run(
            [*command, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert second.returncode == 1
        assert (second.stdout, second.stderr.count("\n")) == ("", 1)
        assert f"a demo runs in {folder} already" in second.stderr
        assert "--folder" in second.stderr
        begun = requests.get(told["open"] + "login", timeout=10)
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
        begun = requests.get(told["open"] + "login", timeout=10)
        assert begun.url.startswith(told["server"] + "/sign-in?resume=")
