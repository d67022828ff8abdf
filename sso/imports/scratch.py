"""A private file for what has to be looked up while an export is read; gone with the process."""

import sqlite3


class Scratch:
    """Texts by kind and key, on disk as soon as they are many."""

    def __init__(self) -> None:
        # Without a name: SQLite deletes the file when it has opened it.
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute(
            "CREATE TABLE texts (kind TEXT, key TEXT, text TEXT, PRIMARY KEY (kind, key))"
            " WITHOUT ROWID"
        )

    def put(self, kind: str, key: str, text: str) -> str | None:
        """Note a text; if there is one already, that stays and is returned."""
        done = self._file.execute("INSERT OR IGNORE INTO texts VALUES (?, ?, ?)", (kind, key, text))
        return None if done.rowcount else self.get(kind, key)

    def get(self, kind: str, key: str) -> str | None:
        found = self._file.execute(
            "SELECT text FROM texts WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return found[0] if found else None

    def close(self) -> None:
        self._file.close()
