"""Tables of other servers' databases, in SQLite and PostgreSQL: in order, and never too many."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from sso.imports import databases, foreign_tables
from sso.imports.databases import Source
from sso.imports.foreign_tables import Reference
from sso.imports.person import FileProblem
from tests.support.databases import create_database

USERS, ROWS = Reference("user", ("id", "name"), "id"), Reference("row", ("userId", "x"), "userId")
Make = Callable[[str], Source]


@pytest.fixture
def make(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    """Make a database by statements."""

    def by(statements: str) -> Source:
        if database == "sqlite":
            path = tmp_path / "db"
            with sqlite3.connect(path) as file:
                file.executescript(statements)
            return databases.parsed(str(path))
        server = request.getfixturevalue("postgresql_url")
        url = create_database(server, "tables", "template0").replace("+psycopg", "")
        with psycopg.connect(url) as connection:
            connection.execute(statements.encode())
        return databases.parsed(url)

    return by


def joined(source: Source) -> list[tuple[object, list[object]]]:
    with databases.opened(source) as database:
        return [
            (row["id"], [child.get("x") for child in others["rows"]])
            for row, others in foreign_tables.joined(database, USERS, {"rows": ROWS})
        ]


@pytest.mark.parametrize("kind", ["TEXT", "INTEGER"])
def test_each_row_gets_its_own(kind: str, make: Make) -> None:
    """As texts: 10 comes before 9. Rows that name nothing or nobody are left out."""
    values = {"TEXT": ["a", "B", "é", "李", "\U0001f511", "a b", "'"]}.get(kind, [9, 10, 1, 100])
    ids = [str(v) if kind == "INTEGER" else "'" + str(v).replace("'", "''") + "'" for v in values]
    statements = [f'CREATE TABLE "user" (id {kind}, name TEXT);',
                  f'CREATE TABLE "row" ("userId" {kind}, x TEXT);']  # fmt: skip
    for number, key in enumerate(ids):
        statements.append(f"INSERT INTO \"user\" VALUES ({key}, 'n');")
        for copy in range(number % 3):
            statements.append(f"INSERT INTO \"row\" VALUES ({key}, '{number}.{copy}');")
    nobody = "'b'" if kind == "TEXT" else "11"
    statements.append(f"INSERT INTO \"row\" VALUES (NULL, 'no'), ({nobody}, 'no');")
    statements.append("INSERT INTO \"user\" VALUES (NULL, 'no');")
    expected = {
        value: [f"{number}.{copy}" for copy in range(number % 3)]
        for number, value in enumerate(values)
    }
    pairs = joined(make("".join(statements)))
    assert [key for key, _ in pairs] == sorted(values, key=str)
    assert {key: sorted(map(str, children)) for key, children in pairs} == expected


def test_a_table_without_the_column_has_no_rows(make: Make) -> None:
    source = make(
        "CREATE TABLE \"user\" (id TEXT, z TEXT); INSERT INTO \"user\" VALUES ('a', 'z');"
        'CREATE TABLE "row" (x TEXT); INSERT INTO "row" VALUES (\'a\');'
        "CREATE VIEW code AS SELECT 1 AS id"
    )
    assert joined(source) == [("a", [])]
    with databases.opened(source) as database:
        assert sorted(database.columns) == ["row", "user"]
        assert list(database.rows("user", ("name", "id"))) == [{"id": "a"}]
        assert list(database.rows("nowhere", ("id",))) == []


@pytest.mark.parametrize("count", [foreign_tables.MOST_OF_ONE, foreign_tables.MOST_OF_ONE + 1])
def test_the_most_rows_of_one(count: int, make: Make) -> None:
    rows = ",".join(["('a', 'x')"] * count)
    source = make(
        'CREATE TABLE "user" (id TEXT); INSERT INTO "user" VALUES (\'a\');'
        f'CREATE TABLE "row" ("userId" TEXT, x TEXT); INSERT INTO "row" VALUES {rows}'
    )
    if count == foreign_tables.MOST_OF_ONE:
        assert len(joined(source)[0][1]) == count
        return
    with pytest.raises(FileProblem, match="more than 2000 rows in row for one row"):
        joined(source)


def test_values_that_are_too_large_together(make: Make, database: str) -> None:
    """PostgreSQL cuts off; SQLite refuses a value of more than a megabyte."""
    large = "printf('%.*c', 900000, 'x')" if database == "sqlite" else "repeat('x', 900000)"
    rows = ",".join([f"({large})"] * 400)
    source = make(f"CREATE TABLE t (x TEXT); INSERT INTO t VALUES {rows}")
    with databases.opened(source) as tables_of_it:
        with pytest.raises(FileProblem, match="has too large things"):
            tables_of_it.few("t", ("x",), 1000, "things")
        with pytest.raises(FileProblem, match="has more than 3 things"):
            tables_of_it.few("t", ("x",), 3, "things")
        longest = max(len(row["x"]) for row in tables_of_it.rows("t", ("x",)))
        assert longest == (900_000 if database == "sqlite" else 100_000)


def test_nothing_can_be_written(make: Make, database: str) -> None:
    source = make("CREATE TABLE t (x TEXT); CREATE TABLE u (x TEXT)")
    table = "t\" WHERE false; INSERT INTO u VALUES ('y'); --"
    with databases.opened(source) as opened:
        assert list(opened.rows(table, ("x",))) == []
        connection = vars(opened)["_connection"]
        with pytest.raises((sqlite3.Error, psycopg.Error), match=r"readonly|read-only"):
            connection.execute("INSERT INTO u VALUES ('y')")


def test_ids_that_are_not_utf_8(tmp_path: Path) -> None:
    """Sorted by their bytes, they would hide rows of others."""
    path = tmp_path / "db"
    with sqlite3.connect(path) as file:
        file.execute('CREATE TABLE "user" (id TEXT)')
        file.execute("INSERT INTO \"user\" VALUES (CAST(x'80' AS TEXT)), ('é')")
    with pytest.raises(FileProblem, match="IDs that are not UTF-8"):
        joined(path)


def test_arrays_of_postgresql(postgresql_url: str) -> None:
    """They are JSON, as other databases have them; what has no type of SQLite is a text."""
    url = create_database(postgresql_url, "tables", "template0").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE SCHEMA auth; CREATE TABLE auth.t (a TEXT[], at TIMESTAMPTZ, b BOOLEAN, n INT);"
            "INSERT INTO auth.t VALUES (ARRAY['x y', 'é'], '2026-01-02 03:04:05+00', true, 7)"
        )
    with databases.opened(databases.parsed(f"{url}?options=-csearch_path%3Dauth")) as database:
        [row] = database.rows("t", ("a", "at", "b", "n"))
    assert row == {"a": '["x y","é"]', "at": row["at"], "b": True, "n": 7}
    assert row["at"].startswith("2026-01-0")
    with databases.opened(databases.parsed(url)) as database:
        assert database.columns == {}
