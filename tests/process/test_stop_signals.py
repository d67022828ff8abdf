"""Programs that were started with signals ignored or blocked end all the same when asked to.

A shell without job control starts what it puts into the background with SIGINT ignored.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import CONFIGURATION, ROOT, Server, free_port, wait_for

pytestmark = pytest.mark.slow

PATIENCE = 120  # seconds; programs that start side by side on few cores take long
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# What a parent may leave to its children: nothing at all, ignored signals, or blocked ones.
PARENTS = {
    "plain": "",
    "ignored": "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})",
    "nohup": "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
}
WAYS = [
    ("plain", TERM), ("ignored", INT), ("blocked", TERM), ("nohup", INT),
    *(
        pytest.param(*way, marks=pytest.mark.exhaustive)
        for way in (("plain", INT), ("plain", HUP), ("ignored", TERM), ("blocked", INT))
    ),
]  # fmt: skip


# What a program does with them is that of the worker; these two differ most.
FEW = [
    ("ignored", INT), ("blocked", TERM),
    pytest.param("plain", TERM, marks=pytest.mark.exhaustive),
    pytest.param("nohup", INT, marks=pytest.mark.exhaustive),
    *WAYS[4:],
]  # fmt: skip


@contextmanager
def started(
    how: str, log: Path, *arguments: str, **environ: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`python ARGUMENTS`, with what this parent leaves to it."""
    begin = f"import os, signal, sys\n{PARENTS[how]}\nos.execv(sys.executable, sys.argv[1:])"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", begin, sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def ends(process: subprocess.Popen[bytes], how: signal.Signals) -> int | None:
    process.send_signal(how)
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    made = Server(tmp_path_factory.mktemp("server"), workers=1)
    made.migrate()
    return made


@pytest.mark.parametrize(("parent", "how"), WAYS)
def test_the_worker(server: Server, tmp_path: Path, parent: str, how: signal.Signals) -> None:
    """It brings what it does to an end, and so ends with 0."""
    code = (
        "import sso.jobs.worker as w, sso.cli.worker as c; run = w.run\n"
        "w.run = lambda *a: (print('runs', flush=True), run(*a))\n"
        "import flask.cli; flask.cli.main()"
    )
    log = tmp_path / "log"
    with started(parent, log, "-c", code, "worker", **server.environ) as process:
        wait_for(lambda: "runs" in log.read_text(), "the worker", PATIENCE)
        if parent == "nohup":
            process.send_signal(HUP)
        assert ends(process, how) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(("parent", "how"), FEW)
def test_the_demo(tmp_path: Path, parent: str, how: signal.Signals) -> None:
    log = tmp_path / "log"
    ports = ("--port", str(free_port()), "--client-port", str(free_port()))
    with started(
        parent, log, "-m", "flask", "demo", "--json", "--folder", str(tmp_path / "demo"), *ports
    ) as process:
        wait_for(lambda: '"open"' in log.read_text(), "the demo", PATIENCE)
        if parent == "nohup":
            process.send_signal(HUP)
        assert ends(process, how) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_signal_in_the_midst_of_another(tmp_path: Path) -> None:
    """A handler interrupts the main thread wherever it is: with the lock of its event, too."""
    log = tmp_path / "log"
    code = (
        "import signal; from threading import Event; from sso.process import stop_signals\n"
        "stop = Event(); stop_signals.call(stop.set)\n"
        "with stop._cond:\n"
        " for _ in range(100_000): signal.raise_signal(signal.SIGINT)\n"  # more than a pipe holds
        "stop.wait(); print('ended')"
    )
    with started("plain", log, "-c", code) as process:
        assert process.wait(30) == 0
    assert log.read_text() == "ended\n"


def test_a_signal_while_no_handler_can_run(tmp_path: Path) -> None:
    """It may arrive just before the main thread blocks, for ever if nobody else hears of it."""
    log = tmp_path / "log"
    code = (
        "import hashlib, os, signal, threading; from sso.process import stop_signals\n"
        "stop_signals.call(lambda: print('asked', flush=True))\n"
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 5_000_000); print('computed')"
    )
    with started("plain", log, "-c", code) as process:
        assert process.wait(60) == 0
    assert log.read_text() == "asked\ncomputed\n"


def test_hundreds_of_signals_at_once(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started("plain", log, "-m", "flask", "worker", **server.environ) as process:
        wait_for(lambda: "worker started" in log.read_text(), "the worker", PATIENCE)
        for number in range(600):
            process.send_signal((INT, TERM)[number % 2])
        assert process.wait(30) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(("parent", "how"), FEW)
def test_programs_of_the_tests(tmp_path: Path, parent: str, how: signal.Signals) -> None:
    """Benchmark and chaos stop the servers that they have started."""
    log = tmp_path / "log"
    code = (
        "import time; from tests.support.processes import end_when_asked; end_when_asked()\n"
        "try:\n print('runs', flush=True); time.sleep(60)\nfinally:\n print('stopped all')"
    )
    with started(parent, log, "-c", code) as process:
        wait_for(lambda: "runs" in log.read_text(), "the program", PATIENCE)
        assert ends(process, how) not in (None, 0)
    assert "stopped all" in log.read_text()


@pytest.mark.parametrize(
    ("parent", "how"),
    [
        ("ignored", INT),
        *(
            pytest.param(*way, marks=pytest.mark.exhaustive)
            for way in (
                ("plain", TERM),
                ("plain", INT),
                ("ignored", TERM),
                ("blocked", INT),
                ("blocked", TERM),
            )
        ),
    ],
)
def test_gunicorn(server: Server, tmp_path: Path, parent: str, how: signal.Signals) -> None:
    """Master and workers; SIGHUP replaces workers."""
    log, port = tmp_path / "log", free_port()
    arguments = (
        "-m",
        "gunicorn",
        "-c",
        CONFIGURATION,
        "-b",
        f"127.0.0.1:{port}",
    )
    with started(parent, log, *arguments, "-w", "1", **server.environ) as process:
        wait_for(lambda: "Booting worker" in log.read_text(), "gunicorn", PATIENCE)
        assert ends(process, how) == 0, log.read_text()
