"""`python -m tests.bench.polls`: what a device's poll costs, beside a userinfo request.

Both run in this process, in turns, without a web server. A poll is that of a device for which
nobody has answered yet, and in time: each device polls once.
"""

import argparse
import contextlib
import gc
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from flask import Flask

from sso import clock, create_app
from sso.config.client_fields import DEVICE_CODE
from sso.crypto import secrets
from sso.extensions import db
from sso.store import devices, migrations
from sso.store.devices import NewDevice
from tests.bench.__main__ import quiet
from tests.bench.transport import Request
from tests.support.actors import BASE, Browser
from tests.support.devices import make_device
from tests.support.factories import ensure_keys, make_client, make_user
from tests.support.processes import SECRET_KEY
from tests.support.servers import postgresql

Environ = dict[str, Any]
Make = Callable[[], Environ]
DEVICES_AT_ONCE = 500
HOST = "sso.bench.example"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.polls", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=50, help="of each kind and round")
    parser.add_argument("--calls", type=int, default=0, help="print so many functions by calls")
    options = parser.parse_args()
    quiet()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        environ = {"SSO_SECRET_KEY": SECRET_KEY}
        if options.database == "postgresql":
            environ["SSO_DATABASE_URL"] = stack.enter_context(postgresql())
        app = create_app(environ, Path(folder))
        with app.app_context():
            migrations.upgrade()
            ensure_keys(SECRET_KEY)
        world = World(app)
        # As in production: for http, Authlib checks at each request whether the host is loopback.
        app = create_app({**environ, "SSO_BASE_URL": f"https://{HOST}{BASE}"}, Path(folder))
        kinds: dict[str, Make] = {"userinfo": world.userinfo, "poll": world.poll}
        for make in kinds.values():
            for _ in range(200):
                answer_to(app, make())
        counts = {name: calls_of(app, make()) for name, make in kinds.items()}
        times: dict[str, list[float]] = {name: [] for name in kinds}
        gc.disable()
        for _ in range(options.rounds):
            for name, make in kinds.items():
                times[name].append(cpu_of(app, [make() for _ in range(options.requests)]))
            gc.collect()
        for name, make in kinds.items():
            expected = {"userinfo": b'"sub"', "poll": b'"authorization_pending"'}[name]
            assert expected in answer_to(app, make())
    ratios = sorted(a / b for a, b in zip(times["poll"], times["userinfo"], strict=True))
    print(f"{options.database}: microseconds of CPU and calls of a request")
    for name in kinds:
        total = sum(counts[name].values())
        print(f"| {name} | {median(times[name]) * 1e6:.0f} | {total} |")
    low, high = ratios[len(ratios) // 10], ratios[-len(ratios) // 10]
    print(f"poll / userinfo: {median(ratios):.2f} ({low:.2f} to {high:.2f} in eight of ten rounds)")
    for name in kinds:
        for function, calls in counts[name].most_common(options.calls):
            print(f"{name:9} {calls:4} {function}")


def answer_to(app: Flask, environ: Environ) -> bytes:
    """Return the body of the answer."""
    answer = app(environ, lambda *_: lambda _: None)
    try:
        return b"".join(answer)
    finally:
        if close := getattr(answer, "close", None):
            close()


def cpu_of(app: Flask, environs: Sequence[Environ]) -> float:
    """Return the seconds of CPU of one request, as the mean of these."""
    begin = time.thread_time()
    for environ in environs:
        answer_to(app, environ)
    return (time.thread_time() - begin) / len(environs)


def calls_of(app: Flask, environ: Environ) -> Counter[str]:
    """Return how often each function is called by a request, those of C included."""
    counts: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            counts[f"{'/'.join(code.co_filename.split('/')[-3:])}:{code.co_name}"] += 1
        elif event == "c_call":
            counts[f"C {getattr(argument, '__qualname__', argument)}"] += 1

    sys.setprofile(note)
    try:
        answer_to(app, environ)
    finally:
        sys.setprofile(None)
    return counts


def _environ(request: Request) -> Environ:
    return {**request.environ(), "wsgi.url_scheme": "https", "HTTP_HOST": HOST}


class World:
    """A signed-in person's access token, and devices that wait."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        make_user(app)
        client = make_client(app)
        browser = Browser(app)
        browser.sign_in()
        self.token = client.exchange(browser.approve(client).code).get_json()["access_token"]
        self.device = make_device(app, confidential=True)
        self.codes: Iterator[str] = iter(())

    def userinfo(self) -> Environ:
        headers = {"Authorization": f"Bearer {self.token}"}
        return _environ(Request("GET", f"{BASE}/oauth2/userinfo", headers))

    def poll(self) -> Environ:
        code = next(self.codes, None)
        if code is None:
            self.codes = iter(self._new_codes())
            code = next(self.codes)
        form = {"grant_type": DEVICE_CODE, "device_code": code, **self.device.credentials()}
        return _environ(Request("POST", f"{BASE}/oauth2/token", form=form))

    def _new_codes(self) -> list[str]:
        now = clock.now()
        codes = [secrets.make_secret(secrets.DEVICE_CODE) for _ in range(DEVICES_AT_ONCE)]
        with self.app.app_context():
            for code in codes:
                device = NewDevice(
                    digest=secrets.digest(code),
                    user_code_digest=secrets.digest(f"user {code}"),
                    client_id=self.device.client_id,
                    scope="openid",
                    resource=None,
                    address="127.0.0.1",
                    program="bench",
                    interval=5,
                    created_at=now,
                    expires_at=now + timedelta(minutes=10),
                )
                devices.add(db.session.connection(), device)
            db.session.commit()
        return codes


if __name__ == "__main__":
    main()
