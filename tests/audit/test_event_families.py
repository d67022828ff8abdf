"""Each event is in one family; the families have the sections of the reference."""

import re
from collections import Counter
from pathlib import Path

from sso.audit.event_families import FAMILIES
from sso.audit.events import Event


def test_each_event_is_in_one_family() -> None:
    events = Counter(event for family in FAMILIES.values() for event in family.events)
    assert set(events.values()) == {1}
    assert set(events) == set(Event)


def test_the_families_are_the_sections_of_the_reference() -> None:
    """An event that no family names is one of operation."""
    text = (Path(__file__).parents[2] / "docs/reference/events.md").read_text()
    sections = dict(re.findall(r"^## (.+)\n([^#]*)", text, re.M))
    sections["Sign-in providers"] = sections.pop("Upstream identity providers")
    by_title = {str(family.title): family.events for family in FAMILIES.values()}
    assert set(sections) <= set(by_title)
    for title, section in sections.items():
        rows = re.findall(r"^\| (`.*?) \|", section, re.M)
        listed = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
        if title != "Limits":
            assert set(by_title[title]) <= listed | set(by_title["Operation"]), title
