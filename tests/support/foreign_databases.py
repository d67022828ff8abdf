"""Databases of other servers, written by their columns."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def write(
    path: Path, tables: Mapping[str, str], rows: Mapping[str, Rows], without: tuple[str, ...] = ()
) -> Path:
    """Write an SQLite database; `without`: tables, or columns as TABLE.NAME."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as file:
        for table, columns in tables.items():
            kept = [c for c in columns.split(", ") if f"{table}.{c.split()[0]}" not in without]
            if table not in without:
                file.execute(f'CREATE TABLE "{table}" ({", ".join(kept)})')
        for table, entries in rows.items():
            for entry in entries:
                names, marks = ", ".join(entry), ", ".join(f":{name}" for name in entry)
                file.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', entry)
    return path
