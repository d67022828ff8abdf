"""The worker: every job in its own rhythm, none held up by another."""

from threading import Event, Thread

import pytest
from flask import Flask

from sso.jobs import worker
from sso.jobs.worker import Job


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
