"""What is collected, in which order, and by whom; the fixtures are in `tests/support`.

The process that only hands tests to the workers imports nothing of the server.
"""

import gc
import os
import re
import sys
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest

# Imports make hardly any rubbish: looking for it would take a fifth of the collection.
gc.set_threshold(100_000, 20, 20)

# Rewriting all assertions takes longer than importing all modules: do it once.
_WITHOUT_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False

# Tests here need a service, a browser, a server process or much time together. Files elsewhere
# mark themselves.
SLOW = (
    "applications",
    "attacks",
    "bench",
    "browser",
    "cli",
    "clients",
    "conformance",
    "explain",
    "journeys",
    "operations",
    "presets",
    "production",
    "scim",
    "store",
)
TESTS = Path(__file__).parent
_IS_SLOW = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what would be deselected."""
    if config.option.markexpr == "not slow":
        if collection_path.parent == TESTS and collection_path.name in SLOW:
            return True
        is_test = collection_path.match("test_*.py")
        return True if is_test and _IS_SLOW.search(collection_path.read_text()) else None
    if config.option.markexpr == "slow" and collection_path.match("test_*.py"):
        is_slow = collection_path.relative_to(TESTS).parts[0] in SLOW
        return None if is_slow or "slow" in collection_path.read_text() else True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow; what takes longest comes first, so that none of it is left to the end.

    Sorted in full: all workers must collect the same order.
    """
    longest = ("applications", "production", "browser")
    items.sort(key=lambda item: (item.path.relative_to(TESTS).parts[0] not in longest, item.path))
    rare = pytest.mark.skip(reason="runs with EXHAUSTIVE=1")
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("exhaustive") and not os.environ.get("EXHAUSTIVE"):
            item.add_marker(rare)


def pytest_configure(config: pytest.Config) -> None:
    hands_out = config.getoption("dist", "no") != "no" and not config.option.collectonly
    if not hands_out:
        for name in ("fixtures", "databases"):
            config.pluginmanager.register(import_module(f"tests.support.{name}"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every other worker begin with the last file: each reads what another one rewrote."""
    report = yield
    worker = getattr(collector.config, "workerinput", {"workerid": "gw0"})["workerid"]
    if isinstance(collector, pytest.Directory) and int(worker.removeprefix("gw")) % 2:
        report.result.reverse()
    return report


def pytest_collection_finish() -> None:
    """What was loaded stays: looking through it for rubbish again and again takes long."""
    gc.collect()
    gc.freeze()
    sys.dont_write_bytecode = _WITHOUT_BYTECODE


# Most tests run on SQLite, and with TEST_DATABASE=postgresql on PostgreSQL.
ON_POSTGRESQL = os.environ.get("TEST_DATABASE", "sqlite") == "postgresql"


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
        self.tick = timedelta(microseconds=1)  # two readings are never the same, as in life

    def now(self) -> datetime:
        self.time += self.tick
        return self.time

    def stand_still(self) -> None:
        """Give the same time until it is moved: for what ends at an exact moment."""
        self.tick = timedelta(0)

    def move(self, **delta: float) -> None:
        self.time += timedelta(**delta)


class Statements(list[str]):
    """The SQL statements of a block, and how many commits there were."""

    commits = 0
