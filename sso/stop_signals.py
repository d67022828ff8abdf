"""The signals that ask a program to end.

A program inherits its parent's dispositions and mask: a shell starts what it puts into the
background with SIGINT ignored, and Python then installs no handler of its own.
"""

import signal
from collections.abc import Callable

_ALWAYS = (signal.SIGINT, signal.SIGTERM)


def call(stop: Callable[[], object]) -> None:
    """Call `stop` at SIGINT and SIGTERM, and at SIGHUP unless `nohup` set that to be ignored.

    Only in the main thread.
    """
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    for number in (*_ALWAYS, *hangup):
        signal.signal(number, lambda *_: stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_ALWAYS, *hangup))
