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

# Tests here need a service, a browser, a server process or much time together, or they are not of
# the core that README's command tries: beginnings of paths. Files elsewhere mark themselves.
SLOW = (
    "applications/",
    "attacks/",
    "audit/",
    "bench/",
    "browser/",
    "cli/",
    "clients/",
    "conformance/",
    "crypto/test_keys",
    "endpoints/admin/test_attributes",
    "endpoints/admin/test_lists",
    "endpoints/test_agent",
    "endpoints/test_bad_input",
    "endpoints/test_client_logo",
    "endpoints/test_connections",
    "endpoints/test_device",
    "endpoints/test_disabled_everywhere",
    "endpoints/test_factors",
    "endpoints/test_fapi2",
    "endpoints/test_forgotten_password",
    "endpoints/test_forward_auth",
    "endpoints/test_mailed",
    "endpoints/test_o",
    "endpoints/test_re",
    "endpoints/test_roles",
    "endpoints/test_saml",
    "endpoints/test_upstream",
    "explain/",
    "i18n/",
    "imports/",
    "jobs/",
    "journeys/",
    "ldap/",
    "oauth/grants/test_id_jag",
    "oauth/grants/test_token_exchange",
    "oauth/test_document_clients",
    "oauth/test_dpop",
    "oauth/test_pushed_by_agents",
    "oauth/test_resource_servers",
    "oauth/test_workload_identity",
    "observability/",
    "operations/",
    "presets/",
    "process/",
    "production/",
    "provisioning/",
    "ratelimit/",
    "scim/",
    "services/test_attribute",
    "services/test_identities",
    "store/",
    "test_error_codes",
    "test_libraries",
    "test_services",
    "web/test_branding",
)
# Tests on each database that repeat one another: on SQLite, where one writes at a time anyway, they
# run with EXHAUSTIVE=1. `store/test_races` and `store/test_redemption` always try its lock; what
# `store/test_expired` deletes is purged there by other tests, too.
ON_POSTGRESQL_ALONE = (
    "audit/test_resealing",
    "clients/test_independent_client",
    "provisioning/test_races",
    "store/test_approvals",
    "store/test_device_races",
    "store/test_expired",
    "store/test_factors",
    "store/test_narrowing_races",
    "store/test_service_token_races",
)
TESTS = Path(__file__).parent
_IS_SLOW = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)


def _is_slow(path: Path) -> bool:
    below = path.relative_to(TESTS).as_posix()
    return f"{below}/".startswith(SLOW)


def _is_rare(item: pytest.Item) -> bool:
    if item.get_closest_marker("exhaustive"):
        return True
    if not item.path.relative_to(TESTS).as_posix().startswith(ON_POSTGRESQL_ALONE):
        return False
    parameters = getattr(item, "callspec", None)
    return parameters is not None and "sqlite" in parameters.params.values()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what would be deselected."""
    if config.option.markexpr == "not slow":
        if _is_slow(collection_path):
            return True
        is_test = collection_path.match("test_*.py")
        return True if is_test and _IS_SLOW.search(collection_path.read_text()) else None
    if config.option.markexpr == "slow" and collection_path.match("test_*.py"):
        return None if _is_slow(collection_path) or "slow" in collection_path.read_text() else True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow; what takes longest comes first, so that none of it is left to the end.

    Sorted in full: all workers must collect the same order.
    """
    longest = ("applications", "production", "browser")
    items.sort(key=lambda item: (item.path.relative_to(TESTS).parts[0] not in longest, item.path))
    rare = pytest.mark.skip(reason="runs with EXHAUSTIVE=1")
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        if _is_rare(item) and not os.environ.get("EXHAUSTIVE"):
            item.add_marker(rare)


def pytest_configure(config: pytest.Config) -> None:
    hands_out = config.getoption("dist", "no") != "no" and not config.option.collectonly
    if not hands_out:
        if config.option.markexpr != "not slow":
            # For each model, pydantic looks through all modules that are there: it comes first.
            for name in ("scim2_server", "scim2_client"):
                import_module(name)
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
