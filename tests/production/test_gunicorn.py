"""gunicorn as shipped: the same settings both ways, no shared connection, no request lost."""

import os
import resource
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest
import requests
from flask import Flask
from gunicorn.config import Config
from sqlalchemy import text

from sso import create_app
from sso.extensions import db
from sso.observability import logs
from sso.server.gunicorn_conf import Logger
from tests.production.seeding import migrate
from tests.support.applications import environ_of
from tests.support.processes import CONFIGURATION, ROOT, Server, wait_for
from tests.support.programs import Program
from tests.support.servers import Node, Postgresql

WANTED = {
    "worker_class": "sso.server.gunicorn_worker.Worker",
    "threads": "222",
    "preload_app": "True",
    "limit_request_line": "8190",
    "graceful_timeout": "30",
    "forwarded_allow_ips": "[]",
    "secure_scheme_headers": "{}",
}


def configuration(folder: Path, printed: Path, *arguments: str) -> dict[str, str]:
    """What gunicorn would run with in this folder; it prints that to a file."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SSO_")}
    environ = {**inherited, "PYTHONPATH": str(ROOT), "WEB_CONCURRENCY": "3"}
    asked = (*arguments, "--print-config")
    errors = printed.with_suffix(".errors")
    program = Program("gunicorn", asked, cwd=folder, env=environ, stdout=printed, stderr=errors)
    assert program.wait(60) == 0, errors.read_text()
    pairs = (line.split("=", 1) for line in printed.read_text().splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def test_both_ways_give_the_same(tmp_path: Path) -> None:
    here = configuration(ROOT, tmp_path / "here", "wsgi:app")
    anywhere = configuration(tmp_path, tmp_path / "anywhere", "-c", CONFIGURATION)
    assert WANTED.items() <= here.items()
    assert here["workers"] == "3"
    assert here["bind"] == "['127.0.0.1:5000']"
    for name in ("config", "wsgi_app", "default_proc_name", "chdir"):
        del here[name], anywhere[name]
    assert here == anywhere


def test_it_listens_where_the_command_says(tmp_path: Path) -> None:
    settings = configuration(ROOT, tmp_path / "printed", "-b", "127.0.0.1:81")
    assert settings["bind"] == "['127.0.0.1:81']"


@pytest.mark.parametrize(("accesslog", "written"), [(None, False), ("-", True)])
def test_its_access_log_is_written_for_who_asks(accesslog: str | None, written: bool) -> None:
    config = Config()
    config.set("logconfig_dict", logs.for_gunicorn({"SSO_LOG_FORMAT": "json"}))
    config.set("accesslog", accesslog)
    assert Logger(config).access_log_enabled is written


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_its_lines_are_whole_and_have_no_queries(tmp_path: Path, log_format: str) -> None:
    with Server(tmp_path, SSO_LOG_FORMAT=log_format).running("--access-logfile", "-") as server:
        requests.get(
            f"{server.base_url}/new-password?token=a-secret",
            headers={"Referer": "https://x.example/?token=a-secret"},
            timeout=20,
        )
        wait_for(lambda: "GET /api/auth/new-password HTTP/1.1" in server.log, "its line")
        assert "a-secret" not in server.log
        assert "Listening at" in server.log
    assert "Logging error" not in server.log
    assert "Traceback" not in server.log


CONTROLS = b"x%0d%0a2026-01-01%20forged%1b%5b2J%c2%9b%e2%80%a8"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_its_access_log_has_no_control_characters(tmp_path: Path, log_format: str) -> None:
    """A decoded path could begin a line of its own, or drive the terminal of who reads it."""
    own = ("--access-logfile", "-", "--access-logformat", '%(U)s "%(a)s" %({x-own}i)s')
    with Server(tmp_path, workers=1, SSO_LOG_FORMAT=log_format).running(*own) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            head = b"GET /.well-known/%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % CONTROLS
            connection.sendall(head + b"User-Agent: a\x9bb\tc\r\nX-Own: \xc2\x85\r\n\r\n")
            while connection.recv(4096):
                continue
        wait_for(lambda: "/.well-known/x" in server.log, "its line")
        log = server.log
    assert not {char for char in log if not char.isprintable()} - {"\n"}
    assert not [line for line in log.splitlines() if line.startswith("2026-01-01")]
    assert r"/.well-known/x\r\n2026-01-01 forged\x1b[2J" in log


def test_its_error_log_has_no_control_characters(tmp_path: Path) -> None:
    config, file = Config(), tmp_path / "error.log"
    config.set("errorlog", str(file))
    logger = Logger(config)
    try:
        raise ValueError("a\n2026-01-01 forged \x1b[2J")
    except ValueError:
        logger.exception("Error handling request %s", "/a\r\n\x1b[2J")
    text = file.read_text()
    assert not {char for char in text if not char.isprintable()} - {"\n"}
    assert r"request /a\r\n\x1b[2J" in text
    assert "\n2026" not in text


def test_a_forked_process_has_connections_of_its_own(cluster: Postgresql, tmp_path: Path) -> None:
    app = create_app(environ_of(cluster.url), tmp_path)
    before = backend(app)
    assert backend(app) == before
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(backend(app)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    assert told.isdigit()
    assert int(told) != before
    assert backend(app) == before  # the child has not closed it, either
    with app.app_context():
        db.engine.dispose()


def backend(app: Flask) -> int:
    """The server's process behind the connection that we get."""
    with app.app_context():
        pid = db.session.scalar(text("SELECT pg_backend_pid()"))
    assert pid
    return int(pid)


SLOW_WORKER = """
import time
from sso.server.gunicorn_conf import *

def post_fork(_, worker):
    if worker.age == 2:
        time.sleep(60)
"""


def test_a_stop_reaches_a_worker_that_is_just_starting(tmp_path: Path) -> None:
    """The other one answers already; without us, gunicorn would wait for graceful_timeout."""
    (tmp_path / "slow.py").write_text(SLOW_WORKER)
    server = Server(tmp_path)
    server.migrate()
    with server.serving("-c", str(tmp_path / "slow.py")):
        pass  # stopped within 20 s, or it raises
    assert server.process.returncode == 0


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    """What this process, and those that it starts, may open meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_connections_that_say_nothing_end_no_worker(tmp_path: Path) -> None:
    """Under the usual limit of 1024: gunicorn keeps 778, and drops the oldest for others."""
    server = Server(tmp_path, workers=1)
    server.migrate()
    with ExitStack() as opened:
        with descriptors(1024):
            opened.enter_context(server.serving())
        opened.enter_context(descriptors(2048))
        (worker,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        files = Path(f"/proc/{worker}/fd")
        for _ in range(1400):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        wait_for(lambda: len(list(files.iterdir())) > 778, "a descriptor for each that it keeps")
        healthz = f"http://127.0.0.1:{server.port}/healthz"
        assert requests.get(healthz, timeout=10).status_code == 200
        assert len(list(files.iterdir())) < 1024  # the same worker


@pytest.fixture(scope="module")
def node(make_node: Callable[..., Node]) -> Node:
    node = make_node(2)
    migrate(node)
    node.start()
    return node


def test_a_reload_loses_no_request(node: Node) -> None:
    """SIGHUP under load: new workers come, the old ones finish what they have."""
    first, enough = set(node.worker_pids()), Event()
    seen: Counter[int] = Counter()

    def ask() -> Counter[int]:
        mine: Counter[int] = Counter()
        while not enough.is_set():
            page = requests.get(f"{node.base_url}/sign-in", timeout=20)
            mine[page.status_code] += 1
        return mine

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            node.process.send_signal(signal.SIGHUP)
            wait_for(lambda: replaced(node, first), "new workers")
        finally:
            enough.set()
        for one in asking:
            seen.update(one.result())
    assert set(seen) == {200}


def replaced(node: Node, before: set[int]) -> bool:
    now = set(node.worker_pids())
    return len(now) == node.workers and not now & before


def test_no_header_makes_an_unknown_peer_a_proxy(node: Node) -> None:
    """Without SSO_TRUSTED_PROXIES, nobody's headers count; not those of this machine, either."""
    forged = {
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Ssl": "on",
        "X-Forwarded-For": "203.0.113.1",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Prefix": "/evil",
        "SCRIPT_NAME": "/api",
        "PATH_INFO": "/healthz",
        "Forwarded": "for=203.0.113.1;proto=https;host=evil.example",
    }
    page = requests.post(
        f"{node.base_url}/oauth2/end-session", headers=forged, allow_redirects=False, timeout=20
    )
    metadata = requests.get(
        f"{node.base_url}/.well-known/openid-configuration", headers=forged, timeout=20
    )
    assert metadata.json()["issuer"] == node.base_url
    assert "evil" not in page.text + str(page.headers) + metadata.text
    node.add_user("forger@example.com", "correct horse battery")
    browser = requests.Session()
    form = browser.get(f"{node.base_url}/sign-in", headers=forged, timeout=20)
    token = form.text.split('name="csrf_token"')[1].split('value="')[1].split('"')[0]
    data = {"email": "forger@example.com", "password": "wrong", "csrf_token": token}
    browser.post(form.url, data=data, headers=forged, timeout=20)
    assert '"address": "127.0.0.1"' in node.log
    assert "203.0.113.1" not in node.log


def test_faults_of_the_settings_end_the_start(make_node: Callable[..., Node]) -> None:
    """Each once, not once for every worker, and not again and again."""
    broken = make_node(2, SSO_BASE_URL="http://x.example")
    broken.start(ready=False)
    assert broken.process.wait(30) != 0
    assert broken.log.count("SSO_BASE_URL") == 1
    assert "Traceback" not in broken.log


def test_a_wrong_secret_key_is_told_and_no_crash(tmp_path: Path) -> None:
    """One that does not open the keys of the database; then the key is replaced beside it."""
    node = Node(tmp_path, 1)
    old = node.environ["SSO_SECRET_KEY"]
    node.migrate()
    node.environ["SSO_SECRET_KEY"] = "another secret key than that of the database"
    node.start(ready=False)
    try:
        wait_for(node.is_listening, "gunicorn")
        ready = node.readiness()
        assert ready.status_code == 503
        assert "SSO_SECRET_KEY does not open" in ready.json()["reason"]
        assert "not ready: SSO_SECRET_KEY does not open" in node.log
        assert "Traceback" not in node.log
        before = node.worker_pids()
        node.flask("key", "reencrypt", SSO_SECRET_KEY_PREVIOUS=old)
        wait_for(node.is_ready, "the server, without a restart", 30)
        assert node.worker_pids() == before
    finally:
        node.stop()
