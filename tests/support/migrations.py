"""`flask migrate SYSTEM`, and what it has left."""

import json
from typing import Any

from flask import Flask
from sqlalchemy import select

from sso.extensions import db


def migrate(app: Flask, system: str, *arguments: str, code: int = 0) -> Any:
    """Run the command; gives its report, or the error if `code` is not 0."""
    done = app.test_cli_runner().invoke(args=["migrate", system, "--json", *arguments])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if not code else done.stderr


def rows(app: Flask, table: type) -> list[Any]:
    with app.app_context():
        return list(db.session.scalars(select(table)))


def lines(report: Any) -> list[tuple[str, str, str]]:
    """The findings without their reasons."""
    return [(finding["fate"], finding["name"], finding["what"]) for finding in report["findings"]]


def forget(app: Flask, *tables: type) -> None:
    """Delete all rows, so that the next case begins without them."""
    with app.app_context():
        for table in tables:
            stored: list[Any] = list(db.session.scalars(select(table)))
            for row in stored:
                db.session.delete(row)
        db.session.commit()
