"""Look up host names with a time limit, which `getaddrinfo` does not have."""

import socket
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from threading import Lock, Thread
from typing import Any

_MOST = 64  # look-ups at once; one that hangs keeps its thread until the system's resolver gives up

Answers = list[Any]


class Resolver:
    """Look-ups of one kind. All that wait for the same name share one thread."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._running: dict[tuple[str, int], Future[Answers]] = {}

    def addresses(self, host: str, port: int, seconds: float) -> Answers:
        """Return the answers of `getaddrinfo` for TCP. Raises `OSError`, within `seconds`."""
        name = (host, port)
        with self._lock:
            answers = self._running.get(name)
            if answers is None:
                if len(self._running) >= self._most:
                    raise TimeoutError("too many names are being looked up")
                answers = Future()
                Thread(target=self._look_up, args=(name, answers), daemon=True).start()
                self._running[name] = answers  # the thread waits for the lock to remove it
        try:
            return answers.result(seconds)
        except Late:
            within = f"{seconds:.2g} s"
            raise TimeoutError(f"the name {host} could not be looked up in {within}") from None

    def _look_up(self, name: tuple[str, int], answers: "Future[Answers]") -> None:
        try:
            resolved = socket.getaddrinfo(*name, type=socket.SOCK_STREAM)
        except Exception as error:
            self._end(name)
            answers.set_exception(error)
        else:
            self._end(name)
            answers.set_result(resolved)

    def _end(self, name: tuple[str, int]) -> None:
        with self._lock:
            del self._running[name]
