"""The signals that ask a program to end.

A program inherits its parent's dispositions and mask: a shell starts background programs with
SIGINT ignored, and Python then installs no handler of its own.
"""

import os
import signal
import threading
from collections.abc import Callable

_ALWAYS = (signal.SIGINT, signal.SIGTERM)
_STOPS = {*_ALWAYS, signal.SIGHUP}


def call(stop: Callable[[], object]) -> None:
    """Call `stop` once, in a thread of its own, when the program is asked to end.

    Python runs handlers in the main thread between two steps. That may be too late: a signal that
    arrives just before the thread blocks is handled when it no longer blocks. It may be too early
    as well, as the thread may hold the lock that `stop` takes. So the handlers do nothing, and the
    other thread is woken by the byte that the interpreter writes when the signal arrives.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wait() -> None:
        while not _STOPS.intersection(os.read(reading, 1)):
            pass  # a signal that other code handles
        stop()

    threading.Thread(target=wait, name="stop", daemon=True).start()
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)  # nobody reads beyond the first
    handle(lambda: None)


def handle(handler: Callable[[], object]) -> None:
    """Call `handler` at SIGINT and SIGTERM, and at SIGHUP unless `nohup` set that to be ignored.

    Only in the main thread, where it runs at once and must take no lock.
    """
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    for number in (*_ALWAYS, *hangup):
        signal.signal(number, lambda *_: handler())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_ALWAYS, *hangup))
