"""The benchmark runs, and what can be counted keeps to its aims. Times are not tested."""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.scenarios import SCENARIOS
from tests.support.processes import ROOT

# Statements and commits of one request, at the most.
AIMS = {
    "authorize": (3, 1),
    "code exchange": (3, 1),
    "refresh": (3, 1),
    "userinfo": (1, 0),
    "sign-in page": (2, 0),  # the client, and whether it has a logo
    "push": (2, 1),
    "authorize, pushed": (5, 1),
    "code exchange, DPoP": (4, 1),
    "refresh, DPoP": (4, 1),
    "userinfo, DPoP": (2, 1),
    # An assertion is verified before, in a transaction of its own: the client, and its identifier.
    "push, fapi2": (4, 2),
    "authorize, fapi2": (5, 1),
    "code exchange, fapi2": (6, 2),
}


def test_the_benchmark_runs(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    small = ["--rounds", "1", "--requests", "16", "--seed-rows", "20", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", *small],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if "|" in line]
    for scenario in SCENARIOS:
        assert found["gunicorn"][scenario.name]["per_second"] > 0
        assert scenario.name in rows
    assert 50 < found["memory_mb"]["at start"] < found["memory_mb"]["after the load"] < 500
    for name, (statements, commits) in AIMS.items():
        # The key ring is read again every ten seconds: once in the twenty requests that count.
        assert found["statements"][name][0] <= statements + 0.05
        assert found["statements"][name][1] <= commits
