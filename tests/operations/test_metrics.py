"""Metrics of gunicorn with two workers on PostgreSQL: all count together, on a port of its own."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from sso.crypto import keys
from tests.operations.conftest import fresh_database
from tests.support.processes import ROOT, Server, free_port, wait_for
from tests.support.servers import children

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def watched(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    environ: dict[str, Any] = {
        "SSO_DATABASE_URL": fresh_database(cluster),
        "SSO_METRICS_PORT": str(free_port()),
    }
    server = Server(tmp_path_factory.mktemp("watched"), **environ)
    with server.running():
        wait_for(lambda: bool(scraped(server)), "the port for metrics")
        yield server


def text_of(server: Server) -> str:
    try:
        answer = requests.get(
            f"http://127.0.0.1:{server.environ['SSO_METRICS_PORT']}/metrics", timeout=10
        )
    except requests.ConnectionError:
        return ""
    assert answer.status_code == 200
    return answer.text


def scraped(server: Server) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text_of(server))
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def test_every_request_of_every_worker_is_counted_once(watched: Server) -> None:
    labels = {"endpoint": "sso.jwks", "method": "GET", "status": "200"}
    before = value(scraped(watched), "sso_http_requests_total", **labels)

    def ask(_: int) -> int:
        return requests.get(f"{watched.base_url}/oauth2/jwks", timeout=10).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(60))) == {200}
    after = scraped(watched)
    assert value(after, "sso_http_requests_total", **labels) == before + 60
    name = "sso_http_request_duration_seconds"
    counted = value(after, f"{name}_count", endpoint="sso.jwks")
    assert counted >= 60
    assert value(after, f"{name}_bucket", endpoint="sso.jwks", le="+Inf") == counted


def test_sign_ins_and_tokens_by_outcome(watched: Server) -> None:
    before = scraped(watched)
    assert value(before, "sso_sign_ins_total", outcome="success") >= 0
    watched.flask("doctor")
    requests.post(
        f"{watched.base_url}/oauth2/token",
        data={"grant_type": "password", "client_id": "a", "client_secret": "b"},
        timeout=10,
    )
    after = scraped(watched)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert grown("sso_sign_ins_total", outcome="success") == 1
    assert grown("sso_sign_ins_total", outcome="failure") == 0
    assert grown("sso_token_requests_total", grant="authorization_code", outcome="ok") == 1
    assert grown("sso_token_requests_total", grant="refresh_token", outcome="ok") == 1
    assert grown("sso_security_events_total", event="consent_given") == 1
    failed = [
        labels
        for (name, labels), _ in after.items()
        if name == "sso_token_requests_total" and ("grant", "other") in labels
    ]
    assert len(failed) == 1


def test_what_is_read_when_asked(watched: Server) -> None:
    found = scraped(watched)
    assert value(found, "sso_database_up") == 1
    assert value(found, "sso_schema_current") == 1
    assert value(found, "sso_gauges_failed") == 0
    ages = [labels for name, labels in found if name == "sso_signing_key_age_seconds"]
    assert len(ages) == 2 * len(keys.ALGORITHMS)  # each has an active and a next key
    assert any(name == "sso_build_info" for name, _ in found)
    assert ("sso_outbox_depth", frozenset({("outbox", "logout")})) in found
    assert value(found, "sso_database_connections", state="open") > 0
    assert value(found, "sso_database_connections", state="in_use") >= 0


def test_strangers_make_no_time_series(watched: Server) -> None:
    def knock(number: int) -> set[object]:
        word = f"zebra{number}"
        requests.get(f"{watched.origin}/{word}", timeout=10)
        requests.request(word.upper(), f"{watched.base_url}/sign-in", timeout=10)
        grant = {"grant_type": word, "client_id": word, "client_secret": word}
        requests.post(f"{watched.base_url}/oauth2/token", data=grant, timeout=10)
        return set(scraped(watched))

    first = knock(0)
    assert knock(1) == knock(2) >= first
    assert "zebra" not in text_of(watched).lower()


@pytest.mark.parametrize("name", ["alerts.yml", "grafana-dashboard.json"])
def test_what_watches_knows_the_names(watched: Server, name: str) -> None:
    watcher = (ROOT / "deploy" / "monitoring" / name).read_text()
    told = set(re.findall(r"^# TYPE (\w+)", text_of(watched), re.MULTILINE))
    told |= {f"{one}_bucket" for one in told}
    asked = set(re.findall(r"\bsso_\w+", watcher))
    assert len(asked) > 5
    assert asked <= told


def test_the_public_port_has_no_metrics(watched: Server) -> None:
    assert requests.get(f"{watched.origin}/metrics", timeout=10).status_code == 404


def test_another_worker_takes_over(watched: Server) -> None:
    """The process that has the port is killed; what it counted stays."""
    before = value(
        scraped(watched),
        "sso_http_requests_total", endpoint="sso.jwks", method="GET", status="200",
    )  # fmt: skip
    inode = _inode(int(watched.environ["SSO_METRICS_PORT"]))
    holder = next(pid for pid in children(watched.pid) if _has_socket(pid, inode))
    os.kill(holder, signal.SIGKILL)
    wait_for(lambda: holder not in children(watched.pid), "its end")
    wait_for(lambda: bool(scraped(watched)), "another worker")
    found = scraped(watched)
    after = value(found, "sso_http_requests_total", endpoint="sso.jwks", method="GET", status="200")
    assert after >= before > 0
    assert value(found, "sso_database_connections", state="open") >= 0


def _inode(port: int) -> str:
    """The listening socket's inode."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            return fields[9]
    raise AssertionError(f"nobody listens on {port}")


def _has_socket(pid: int, inode: str) -> bool:
    folder = Path(f"/proc/{pid}/fd")
    return any(
        str(one.readlink()) == f"socket:[{inode}]"
        for one in list(folder.iterdir())
        if one.is_symlink()
    )
