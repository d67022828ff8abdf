"""Stop signals that reach a process at its fork, or a thread other than the main one.

A worker has its master's handlers until it sets its own. They note a signal for the master's loop;
the worker never enters that, and the master would wait for `common.GRACE`.
"""

import os
import signal
import threading

_STOPS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
_held = threading.local()


def prepare() -> None:
    """For all forks of this process from now on; once in the master."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)  # the parent may have left them blocked
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_begin)


def _hold() -> None:
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.before)


def _begin() -> None:
    for stop in _STOPS:
        # Not the default: at SIGQUIT that would write the memory, with all keys, to a file.
        signal.signal(stop, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def listen() -> None:
    """Let a thread of its own call the handlers of SIGHUP and, once, of a stop signal.

    Linux gives a signal to any thread that does not block it, and Python runs its handler when the
    main thread runs again. A main thread that waits for nothing but the handler never does.

    For the main thread, before it starts others: they inherit what it blocks.
    """
    numbers = {*_STOPS, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait() -> None:
        number = None
        while number not in _STOPS:
            number = signal.sigwait(numbers)
            handler = signal.getsignal(number)
            if callable(handler):
                handler(number, None)

    threading.Thread(target=wait, name="signals", daemon=True).start()
