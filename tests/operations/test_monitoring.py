"""What watches: a real Prometheus that scrapes a real server; the alerts by its own test tool."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.processes import ROOT, Server, free_port, require, wait_for

MONITORING = ROOT / "deploy" / "monitoring"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Prometheus with our rules, and two scrapes of a server that has been asked something."""
    folder, port, metrics_port = tmp_path_factory.mktemp("watch"), free_port(), free_port()
    program = require("Prometheus", shutil.which("prometheus"))
    configuration = folder / "prometheus.yml"
    configuration.write_text(
        f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{MONITORING / "alerts.yml"}]
scrape_configs: [{{job_name: sso, static_configs: [{{targets: ["127.0.0.1:{metrics_port}"]}}]}}]
"""
    )
    address = f"http://127.0.0.1:{port}"
    with Server(folder, SSO_METRICS_PORT=str(metrics_port)).running() as server:
        with (folder / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [
                    *(program, f"--config.file={configuration}"),
                    *(f"--storage.tsdb.path={folder / 'tsdb'}", "--web.enable-admin-api"),
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            asked = {"grant_type": "refresh_token", "client_id": "nobody", "client_secret": "x"}

            def is_seen() -> bool:
                requests.post(f"{server.base_url}/oauth2/token", asked, timeout=10)
                try:
                    return bool(ask(address, "rate(sso_token_requests_total[10s]) > 0"))
                except requests.ConnectionError:
                    return False

            wait_for(is_seen, "Prometheus")
            yield address
        finally:
            process.terminate()
            process.wait(20)


def ask(address: str, expression: str) -> list[Any]:
    answer = requests.get(f"{address}/api/v1/query", {"query": expression}, timeout=10)
    if answer.status_code == 503:  # it is still starting
        return []
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["data"]["result"]
    return found


def expressions() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_every_panel_shows_something(prometheus: str) -> None:
    assert len(expressions()) > 10
    for expression in expressions():
        filled = expression.replace("$instance", ".*").replace("$__rate_interval", "10s")
        # Nobody has signed in.
        if "sso_sign_ins_total" not in filled:
            assert ask(prometheus, filled), filled


def test_the_rules_are_taken_and_all_is_quiet(prometheus: str) -> None:
    def groups() -> list[Any]:
        answer = requests.get(f"{prometheus}/api/v1/rules", timeout=10).json()
        found: list[Any] = answer["data"]["groups"]
        return found

    wait_for(lambda: all(rule["health"] == "ok" for rule in groups()[0]["rules"]), "the rules")
    assert {rule["state"] for rule in groups()[0]["rules"]} == {"inactive"}


ALERTS = {
    "SsoDown": ('up{job="sso",instance="a"}', "1 1 0x10"),
    "SsoDatabaseAway": ('sso_database_up{instance="a"}', "1 1 0x10"),
    "SsoSchemaNotCurrent": ('sso_schema_current{instance="a"}', "0x20"),
    "SsoServerErrors": ('sso_http_requests_total{instance="a",status="500"}', "0+60x30"),
    "SsoWorkerAway": ('sso_worker_seen_seconds{instance="a"}', "601+60x20"),
    "SsoSigningKeyOld": (
        'sso_signing_key_age_seconds{instance="a",alg="RS256",state="active"}',
        f"{96 * 86400}x20",
    ),
}


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_fires(alert: str, tmp_path: Path) -> None:
    promtool = require("promtool", shutil.which("promtool"))
    series, values = ALERTS[alert]
    case = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": "15m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                ],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(json.dumps(case))  # which is YAML, too
    done = subprocess.run(
        [promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("outcome", "alerts"), [("invalid_grant", 1), ("authorization_pending", 0), ("slow_down", 0)]
)
def test_devices_that_poll_are_no_alarm(outcome: str, alerts: int, tmp_path: Path) -> None:
    promtool = require("promtool", shutil.which("promtool"))
    name = "sso_token_requests_total"
    case = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f'{name}{{outcome="ok"}}', "values": "0+1x60"},
                    {"series": f'{name}{{outcome="{outcome}"}}', "values": "0+120x60"},
                ],
                "promql_expr_test": [
                    {
                        "expr": 'count(ALERTS{alertname="SsoTokensRefused",alertstate="firing"})',
                        "eval_time": "50m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if alerts else [],
                    }
                ],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(json.dumps(case))
    done = subprocess.run(
        [promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_mend() -> None:
    text = (MONITORING / "alerts.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    assert set(ALERTS) <= set(alerts)
    assert text.count("description:") == len(alerts)
