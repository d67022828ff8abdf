"""granian instead of gunicorn: `python -m sso.server.granian`, with the extra `granian`.

It needs a proxy in front that reads whole bodies and removes headers with underscores: see
docs/deploy/granian.md.
"""

import argparse
import logging
import multiprocessing
import multiprocessing.util
import signal
import socket
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from flask import Flask
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]  # as granian itself does
from granian.server.mp import MPServer
from gunicorn import systemd

from sso.config.settings import Settings
from sso.database import buffer
from sso.observability import logs
from sso.process import program
from sso.server import common, fork_signals

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from sso import wsgi
else:  # it builds the application
    wsgi = program.late_module("sso.wsgi")

logger = logging.getLogger("sso.start")

BACKLOG = 2048
CONNECTIONS = 1000  # of a worker; those that are kept count, too
LONGEST_HEAD = 64 * 1024  # bytes
_WARNING = (
    "granian waits without end for a body that arrives slowly: put a proxy in front that reads it "
    "first, and set SSO_TRUSTED_PROXIES"
)


class Server(MPServer):
    """granian with one socket for all its workers.

    By itself each has one of its own, and a worker that ends takes with it what waits there.
    """

    def _init_shared_socket(self) -> None:
        if systemd.listen_fds():
            self._sso = socket.socket(fileno=systemd.SD_LISTEN_FDS_START)
        else:
            family = socket.AF_INET6 if ":" in self.bind_addr else socket.AF_INET
            place = (self.bind_addr, self.bind_port)
            self._sso = socket.create_server(place, family=family, backlog=BACKLOG)
            self._sso.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # of its connections
        self._sso.set_inheritable(True)
        # Its stub lacks what it takes, and None is all that the attribute is declared for.
        self._shd = SocketHolder(self._sso.fileno(), False, BACKLOG)  # type: ignore[call-arg, assignment]


def main() -> None:
    """Serve until SIGTERM. SIGHUP replaces the workers."""
    host, port, workers = _options()
    common.prepare()
    app: Flask = wsgi.app
    settings: Settings = app.extensions["sso.settings"]
    multiprocessing.set_start_method("fork", force=True)  # what the master loaded is shared
    server = Server(
        "sso.wsgi:app",
        address=host,
        port=port,
        interface=Interfaces.WSGI,
        workers=workers,
        blocking_threads=common.THREADS,
        backpressure=CONNECTIONS,
        http=HTTPModes.http1,
        websockets=False,
        # The time for the next request of a kept connection, too.
        http1_settings=HTTP1Settings(common.KEEP_ALIVE * 1000, max_buffer_size=LONGEST_HEAD),
        log_dictconfig=logs.for_granian(),
        respawn_failed_workers=True,
        respawn_interval=1,  # seconds until the worker that takes over answers
        workers_kill_timeout=common.GRACE,
    )
    common.loaded(app)
    if not settings.trusted_proxies and not common.address():
        logger.warning(_WARNING)
    # Not the default, which would write the memory, with all keys, to a file.
    signal.signal(signal.SIGQUIT, server.signal_handler_interrupt)
    server.on_startup(fork_signals.listen)  # its handlers are set, and its workers not yet forked
    server.on_startup(partial(systemd.sd_notify, "READY=1", logger))
    server.serve(target_loader=partial(_begin, app), wrap_loader=False)


def _options() -> tuple[str, int, int]:
    host, port = common.address() or ("127.0.0.1", 8000)
    parser = argparse.ArgumentParser(prog="python -m sso.server.granian", description=main.__doc__)
    parser.add_argument("-b", "--bind", default=f"{host}:{port}", metavar="ADDRESS:PORT")
    parser.add_argument("-w", "--workers", type=int, default=common.workers())
    options = parser.parse_args()
    host, _, number = options.bind.rpartition(":")
    if not number.isdecimal():
        parser.error(f"{options.bind} is not ADDRESS:PORT")
    return host.strip("[]"), int(number), options.workers


def _begin(app: Flask) -> "WSGIApplication":
    """Begin in a worker, and return the application that it serves."""
    fork_signals.listen()
    common.begin(app)
    # multiprocessing runs nothing that is registered with atexit.
    multiprocessing.util.Finalize(None, buffer.flush_all, exitpriority=0)
    return partial(_serve, app)


def _serve(
    app: Flask, environ: "WSGIEnvironment", start_response: "StartResponse"
) -> Iterable[bytes]:
    if "HTTP_TRANSFER_ENCODING" in environ:
        # What granian hands out for chunks that broke off looks like a whole body.
        start_response("411 Length Required", [("Content-Length", "0")])
        return []
    return app(environ, start_response)


if __name__ == "__main__":
    main()
