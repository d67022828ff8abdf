"""A stop that reaches a worker while it is being forked ends it.

Until it has handlers of its own, a worker has its master's, which note a signal for the master's
loop; the worker never enters that, and the master would wait for `common.GRACE`.
"""

import os
import signal

_STOPS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def prepare() -> None:
    """For all forks of this process from now on; once in the master."""
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_begin)


def _hold() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def _begin() -> None:
    for stop in _STOPS:
        # Not the default: at SIGQUIT that would write the memory, with all keys, to a file.
        signal.signal(stop, lambda *_: os._exit(0))
    _release()
