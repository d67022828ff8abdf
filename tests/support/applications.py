"""Applications are costly to make, so a test gets one that another test is done with, as new."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from sso import create_app
from sso.audit import writer
from sso.config.branding import Branding
from sso.extensions import db
from sso.oauth import document_clients, key_sets
from sso.observability import logs
from sso.process import concurrency
from sso.ratelimit.storage import LimitStorage
from sso.store import refusals
from sso.web import proxies
from tests.support.processes import SECRET_KEY

MOST = 8  # applications that wait in a process for the next test
# What tests change of an application; its settings are among the extensions.
CHANGEABLE = (
    "config", "extensions", "view_functions", "before_request_funcs", "after_request_funcs",
    "teardown_request_funcs", "teardown_appcontext_funcs", "error_handler_spec",
    "template_context_processors", "jinja_loader", "session_interface", "wsgi_app",
    "test_client_class",
)  # fmt: skip
# What tests put something else in place of: the first one is put back.
REPLACED = ("sso.limits", "sso.settings", "sso.upstreams")


class _Compiled(BytecodeCache):
    """Templates that a test compiled, for the applications of the tests after it."""

    def __init__(self) -> None:
        self.code: dict[tuple[str, str], Any] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.code[bucket.key, bucket.checksum] = bucket.code


_TEMPLATES = _Compiled()


def _copy(value: Any) -> Any:
    """Of the dictionaries and lists, not of what is in them.

    Without the empty dictionaries that a look into a `defaultdict` leaves.
    """
    if isinstance(value, dict):
        found = {
            key: _copy(one) if isinstance(one, dict | list) else one for key, one in value.items()
        }
        return {key: one for key, one in found.items() if one != {}}
    return list(value) if isinstance(value, list) else value


class _Made:
    def __init__(self, environ: dict[str, str], instance: Path) -> None:
        self.app = app = create_app(environ, instance)
        app.config["TESTING"] = True
        app.jinja_env.bytecode_cache = _TEMPLATES
        # As in production: a fault becomes an answer, which the tests then look at.
        app.config["PROPAGATE_EXCEPTIONS"] = False
        self.first = self._state()

    def _state(self) -> dict[str, Any]:
        state = {name: _copy(getattr(self.app, name)) for name in CHANGEABLE}
        return state | {"rules": len(list(self.app.url_map.iter_rules()))}

    def renew(self) -> bool:
        """As if it were made now; false if a test changed what cannot be brought back."""
        app, extensions = self.app, self.app.extensions
        for name in extensions.keys() - self.first["extensions"].keys():
            del extensions[name]  # was made when it was first used
        extensions.update({name: self.first["extensions"][name] for name in REPLACED})
        if self._state() != self.first:
            return False
        settings, ring = extensions["sso.settings"], extensions["sso.keys"]
        ring._loaded = ring._loaded_at = None
        extensions["sso.branding"]._stored = Branding()
        extensions["sso.branding"].forget()
        extensions["sso.limits"] = LimitStorage(settings.redis_url)
        key_sets.init_app(app)
        document_clients.init_app(app)
        del vars(app)["wsgi_app"]
        concurrency.init_app(app)
        proxies.init_app(app, settings.trusted_proxies, settings.base_path)
        logs.configure(app)
        self.first = self._state()
        return True

    def dispose(self) -> None:
        writer.flush(self.app)  # the next test has the same database
        refusals.flush(self.app)
        with self.app.app_context():
            db.engine.dispose()


def environ_of(url: str | None) -> dict[str, str]:
    return {"SSO_SECRET_KEY": SECRET_KEY} | ({"SSO_DATABASE_URL": url} if url else {})


class Applications:
    """The applications of a process; on SQLite, their database is a link to the test's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: deque[tuple[dict[str, str], _Made]] = deque(maxlen=MOST)

    @contextmanager
    def of_a_test(self, database_url: str | None, instance: Path) -> Iterator[Callable[..., Flask]]:
        """Give applications with these settings; all of one test share one database."""
        link, used = self._folder / "sso.db", list[tuple[dict[str, str], _Made]]()
        for file in (link, *self._folder.glob("sso.db-*")):
            file.unlink(missing_ok=True)
        link.symlink_to(instance / "sso.db")

        def make(*, new: bool = False, **environ: str) -> Flask:
            """`new` is for tests that add routes or hooks, which Flask takes at the start alone."""
            settings = {**environ_of(database_url), **environ}
            waiting = None if new else self._find(settings)
            used.append((settings, waiting or _Made(settings, self._folder)))
            return used[-1][1].app

        yield make
        for settings, made in used:
            made.dispose()
            self._waiting.append((settings, made))

    def _find(self, environ: dict[str, str]) -> _Made | None:
        for one in reversed(self._waiting):
            if one[0] == environ:
                self._waiting.remove(one)
                return one[1] if one[1].renew() else None
        return None
