"""The values that an attribute of each type may have, and who may read and change them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from sso.flow import attributes
from sso.flow.attributes import Party


@dataclass
class Definition:
    type: str = "string"
    name: str = "level"
    title: str = ""
    choices: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    writers: list[str] = field(default_factory=lambda: ["administrator"])


GOOD: list[tuple[str, Any]] = [
    ("string", "R&D"),
    ("string", "x" * 2000),
    ("number", 0),
    ("number", -3),
    ("number", 2.5),
    ("number", 0.1 + 0.2),
    ("number", -1e-7),
    ("number", 1.2345678901234567e-5),
    ("number", 0.00012345678901234567),
    ("number", 2**53 - 1),
    ("boolean", True),
    ("boolean", False),
    ("date", "2030-01-31"),
    ("date", "2028-02-29"),
    ("list", ["a", "b"]),
    ("list", ["x" * 200] * 1),
    ("list", [str(number) for number in range(100)]),
    ("choice", "gold"),
]
BAD: list[tuple[str, Any]] = [
    ("string", 3),
    ("string", True),
    ("string", ["a"]),
    ("string", {"a": "b"}),
    ("string", "x" * 2001),
    ("string", "x" * 1_000_000),
    ("string", "a\nb"),
    ("string", "a\u2028b"),
    ("string", "a\x00"),
    ("string", "\ud800"),
    ("number", "3"),
    ("number", True),
    ("number", 2**53),
    ("number", 10**400),
    ("number", float("inf")),
    ("number", float("nan")),
    ("boolean", 1),
    ("boolean", "true"),
    ("date", "2030-02-30"),
    ("date", "2027-02-29"),
    ("date", "20300131"),
    ("date", "2030-01-31T00:00:00"),
    ("date", "\u0662030-01-31"),
    ("list", "a"),
    ("list", ["a", 1]),
    ("list", ["a", "a"]),
    ("list", ["a", ""]),
    ("list", ["x" * 201]),
    ("list", [str(number) for number in range(101)]),
    ("choice", "bronze"),
    ("choice", ["gold"]),
    ("choice", {}),
]


@pytest.mark.parametrize(("kind", "value"), GOOD, ids=lambda value: str(value)[:20])
def test_a_value_that_fits(kind: str, value: Any) -> None:
    assert attributes.value_error(Definition(kind, choices=["gold"]), value) is None
    assert attributes.parsed(kind, attributes.text_of(value, "\n"), "\n") == value


@pytest.mark.parametrize(("kind", "value"), BAD, ids=lambda value: ascii(value)[:20])
def test_a_value_that_does_not_fit(kind: str, value: Any) -> None:
    error = attributes.value_error(Definition(kind, choices=["gold"]), value)
    assert error is not None
    assert "level" in error


@pytest.mark.parametrize(
    ("value", "tidy"),
    [
        *[("", None), ("  ", None), (" a ", "a"), ([], None), (["", " a ", "a"], ["a"]), (0, 0)],
        *[(False, False), (None, None), ([1], [1])],
    ],
    ids=repr,
)
def test_only_empty_texts_and_lists_are_no_value(value: Any, tidy: Any) -> None:
    assert attributes.tidy(value) is tidy or attributes.tidy(value) == tidy


@pytest.mark.parametrize(
    "text",
    ["1e3", "0x10", "1_000", "\u0661", "nan", "inf", "1,5", "--1", "9" * 17, "1." + "1" * 22],
)
def test_a_text_that_is_no_number_stays_a_text(text: str) -> None:
    assert attributes.parsed("number", text) == text


@pytest.mark.parametrize(
    ("readers", "writers", "read_by", "changed_by"),
    [
        ([], [], {"administrator"}, set()),
        (["person"], [], {"administrator", "person"}, set()),
        ([], ["person"], {"administrator", "person"}, {"person"}),
        (["person"], ["helpdesk"], {"administrator", "person", "helpdesk"}, {"helpdesk"}),
        ([], ["administrator"], {"administrator"}, {"administrator"}),
    ],
)
def test_who_may_read_and_change(
    readers: list[str], writers: list[str], read_by: set[str], changed_by: set[str]
) -> None:
    definition = Definition(readers=readers, writers=writers)
    assert {party for party in Party if attributes.may_read(definition, party)} == read_by
    assert {party for party in Party if attributes.may_write(definition, party)} == changed_by
    assert attributes.may_write(definition, None)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"name": "Level"},
        {"name": "1level"},
        {"name": "cost-center"},
        {"name": "le vel"},
        {"name": "l\u0435vel"},
        {"name": "x" * 65},
        {"name": "id"},
        {"name": "schemas"},
        {"name": "meta"},
        {"name": "external_id"},
        {"title": "x" * 201},
        {"title": "a\nb"},
        {"type": "text"},
        {"type": "choice"},
        {"type": "choice", "choices": ["a", ""]},
        {"type": "choice", "choices": [str(number) for number in range(101)]},
        {"choices": ["gold"]},
        {"readers": ["administrator"]},
        {"readers": ["everyone"]},
        {"writers": ["Person"]},
    ],
    ids=lambda changed: ascii(changed)[:40],
)
def test_a_definition_that_is_refused(changed: dict[str, Any]) -> None:
    assert list(attributes.definition_errors(Definition(**changed)))
