"""gunicorn's settings for the bare route: the server's own, but for what asks the server."""

import gc
from typing import Any

from sso.server.gunicorn_conf import *  # noqa: F403 (the names are gunicorn's settings)

wsgi_app = "tests.bench.bare:app"


def when_ready(server: Any) -> None:  # type: ignore[no-redef]  # in place of the server's
    gc.collect()
    gc.freeze()


def post_worker_init(worker: Any) -> None:  # type: ignore[no-redef]
    pass
