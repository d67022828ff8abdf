"""A signal that reaches a process at the very moment of its fork, or one of its threads."""

import subprocess
import sys

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.slow

# What is registered first runs first in the child: there the signal comes before all else.
STRUCK = """
import os, signal, sys, time
from sso.server import fork_signals

stop = signal.Signals[sys.argv[1]]
noted = []
signal.signal(stop, lambda *_: noted.append(stop))
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), stop))
fork_signals.prepare()
child = os.fork()
if child == 0:
    time.sleep(20)  # as a worker that never sees what its master would have noted
    os._exit(9)
_, status = os.waitpid(child, 0)
os.kill(os.getpid(), stop)
held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
print(os.waitstatus_to_exitcode(status), len(noted), len(held))
"""


@pytest.mark.parametrize("stop", ["SIGINT", "SIGQUIT", "SIGTERM"])
def test_it_ends_the_child_and_the_parent_keeps_its_handlers(stop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRUCK, stop],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["0", "1", "0"]


HEARD = """
import os, signal, threading
from sso.server import fork_signals

ended = threading.Event()

def note(number, _):
    print(signal.Signals(number).name, threading.current_thread().name, flush=True)
    if number == signal.SIGTERM:
        ended.set()

for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, note)
fork_signals.listen()

def ask():
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    print(len(held & {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}), flush=True)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=ask).start()
ended.wait()
"""


def test_another_thread_than_the_main_one_hears_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEARD],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["4", "SIGHUP signals", "SIGTERM signals"]
