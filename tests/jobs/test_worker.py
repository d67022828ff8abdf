"""The worker: every job in its own rhythm, none held up by another."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread

import pytest
from flask import Flask

from sso import context
from sso.crypto.keys import ALGORITHMS
from sso.jobs import worker
from sso.jobs.worker import Job
from sso.process import stop_signals
from sso.store import keys
from tests.conftest import Clock


def test_a_job_that_hangs_or_fails_holds_up_no_other(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, released, done, stop = Event(), Event(), Event(), Event()
    failures = []

    def hang() -> int:
        hanging.set()
        released.wait(20)
        return 0

    def fail() -> int:
        failures.append(1)
        raise OSError

    def work() -> int:
        if hanging.is_set() and len(failures) > 1:
            done.set()
        return 0

    jobs = (Job("hang", 9, hang), Job("fail", 0.01, fail), Job("work", 0.01, work))
    monkeypatch.setattr(worker, "JOBS", jobs)
    running = Thread(target=worker.run, args=(app, stop))
    running.start()
    try:
        assert done.wait(20)
        stop.set()
        running.join(0.1)
        assert running.is_alive()  # what was begun is brought to its end
    finally:
        stop.set()
        released.set()
        running.join(20)
    assert not running.is_alive()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no mail server is configured: mail is written to the log"),
        ({"SSO_SMTP_URL": "smtp://ann:secret@mail.example"}, "mail goes to mail.example"),
    ],
)
def test_it_says_at_the_start_where_mail_goes(
    make_app: Callable[..., Flask],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    words: str,
) -> None:
    monkeypatch.setattr(worker, "run", lambda *_: None)
    monkeypatch.setattr(stop_signals, "call", lambda _: None)
    assert make_app(**settings).test_cli_runner().invoke(args=["worker"]).exit_code == 0
    assert f"worker started; {words}" in caplog.messages
    assert "secret" not in caplog.text


def test_keys_are_rotated_when_they_have_reached_their_age(app: Flask, clock: Clock) -> None:
    clock.stand_still()
    with app.app_context():
        oldest = keys.oldest_activation()
        assert oldest
        age = timedelta(seconds=context.settings().key_lifetime)
        clock.move(seconds=(oldest + age - clock.time).total_seconds() - 1)
        assert worker.rotate_aged_keys() == 0
        clock.move(seconds=1)
        assert worker.rotate_aged_keys() == len(ALGORITHMS)
        assert worker.rotate_aged_keys() == 0
        assert keys.oldest_activation() == clock.time
