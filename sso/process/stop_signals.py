"""The signals that ask a program to end.

A program inherits its parent's dispositions and mask: a shell starts what it puts into the
background with SIGINT ignored, and Python then installs no handler of its own.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

_ALWAYS = (signal.SIGINT, signal.SIGTERM)


def call(stop: Callable[[], object]) -> None:
    """Call `stop` once, in a thread of its own, when the program is asked to end.

    A handler runs between any two steps of the main thread, which may hold the very lock that
    `stop` takes, even that of a handler before it: so the handler only writes a byte.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wait() -> None:
        os.read(reading, 1)
        stop()

    def tell() -> None:
        with suppress(BlockingIOError):  # nobody reads beyond the first
            os.write(writing, b"!")

    threading.Thread(target=wait, name="stop", daemon=True).start()
    handle(tell)


def handle(handler: Callable[[], object]) -> None:
    """Call `handler` at SIGINT and SIGTERM, and at SIGHUP unless `nohup` set that to be ignored.

    Only in the main thread, where it runs at once and must take no lock.
    """
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    for number in (*_ALWAYS, *hangup):
        signal.signal(number, lambda *_: handler())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_ALWAYS, *hangup))
