"""The short form of `python -m tests.production.chaos`."""

from pathlib import Path

import pytest

from tests.production import chaos


@pytest.mark.parametrize(
    "database", [pytest.param("sqlite", marks=pytest.mark.exhaustive), "postgresql"]
)
def test_nothing_lost_and_nothing_twice(database: str, tmp_path: Path) -> None:
    outcome = chaos.run(database, seconds=6, folder=tmp_path, seed=7)
    assert outcome.audit.wrong == [], str(outcome)
    assert outcome.blows["workers killed"] > 0
    assert outcome.audit.figures["token responses seen by clients"] > 0
    assert outcome.audit.figures["refreshes seen by clients"] > 0
