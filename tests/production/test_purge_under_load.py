"""The short form of `python -m tests.production.purge_under_load`."""

import json
from pathlib import Path

import pytest

from tests.production import purge_under_load

ROWS = 2500


@pytest.mark.parametrize(
    "database", [pytest.param("sqlite", marks=pytest.mark.exhaustive), "postgresql"]
)
def test_requests_go_on(database: str, tmp_path: Path) -> None:
    figures = purge_under_load.run(database, ROWS, tmp_path, before=0.5)
    assert figures["faults"] == []
    assert sum(json.loads(figures["purged"]).values()) == ROWS
    assert figures["rows_left"] <= figures["rows_made_meanwhile_at_most"]
