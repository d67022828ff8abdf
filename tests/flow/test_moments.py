"""Moments that operators write: what is read can be written, compared and shown."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sso.flow import group_ends, moments

EDGES = ["1900-01-01", "1900-01-01T00:00+00:00", "9999-12-31", "9999-12-30T23:59:59Z"]
BEYOND = [
    "0001-01-01", "0001-01-03", "0500-01-01", "1899-12-31T23:59:59Z", "1900-01-01T00:00+01:00",
    "9999-12-31T00:00:01Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00",
]  # fmt: skip


@pytest.mark.parametrize("text", EDGES)
def test_the_first_and_last_moments(text: str) -> None:
    moment = moments.parsed(text)
    assert moments.parsed(moments.text_of(moment)) == moment
    for hours in -14, 14:
        assert moment.astimezone(timezone(timedelta(hours=hours))) == moment
    due = group_ends.next_due({"staff": moments.text_of(moment)}, {})
    assert due == moment - moments.NOTICE
    is_past = moment < datetime(2026, 1, 1, tzinfo=UTC)
    present = group_ends.present(
        ["staff"], {"staff": moments.text_of(moment)}, datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert present == ([] if is_past else ["staff"])


@pytest.mark.parametrize("text", BEYOND)
def test_moments_that_no_page_could_show_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        moments.parsed(text)
