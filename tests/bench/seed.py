"""Fills the database: users who can sign in, with sessions, consents, grants, codes and tokens."""

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from sqlalchemy import JSON, String, Uuid, case, cast, func, insert, literal, select, text
from sqlalchemy.sql.elements import ColumnElement

from sso import clock
from sso.crypto import passwords
from sso.database import dialects
from sso.extensions import UtcDateTime, db
from sso.models import (
    AuditEvent,
    AuthorizationCode,
    BrowserSession,
    Consent,
    Grant,
    Group,
    LogoutDelivery,
    Mail,
    Token,
    User,
)

PASSWORD = "correct horse battery"
TOKENS_PER_GRANT = 10
STEP = 100_000  # rows in one statement

Number = ColumnElement[Any]


def email(number: int) -> str:
    """The address of a seeded user."""
    return f"user{number}@bench.example"


def user_id(number: int) -> str:
    """The identifier of a seeded user."""
    return str(UUID(hashlib.md5(f"user{number}".encode()).hexdigest()))


def fill(app: Flask, client_id: str, rows: int, say: Callable[[str], None]) -> None:
    """So many users with one session, consent, grant and code each, and ten tokens; commits."""
    now = clock.now()
    times = {name: literal(now - timedelta(days=days), UtcDateTime) for name, days in _AGES.items()}
    long = literal(now + timedelta(days=20), UtcDateTime)
    user, grant, session = _uuid("user"), _uuid("grant"), _uuid("session")
    password_hash = literal(passwords.hash_password(PASSWORD))
    tables: tuple[tuple[type, int, Callable[[Number], dict[str, Any]]], ...] = (
        (
            User,
            1,
            lambda n: {
                "id": user(n),
                "email": _text("user", n) + "@bench.example",
                "email_verified": literal(True),
                "name": _text("User ", n),
                "password_hash": password_hash,
            },
        ),
        (
            BrowserSession,
            1,
            lambda n: {
                "id": session(n),
                "digest": _digest("session", n),
                "user_id": user(n),
                "auth_time": times["old"],
                "amr": literal("pwd"),
                "acr": literal("1"),
                "expires_at": long,
            },
        ),
        (
            Consent,
            1,
            lambda n: {
                "user_id": user(n),
                "client_id": literal(client_id),
                "scope": literal("openid profile email"),
            },
        ),
        (
            Grant,
            1,
            lambda n: {
                "id": grant(n),
                "user_id": user(n),
                "client_id": literal(client_id),
                "session_id": session(n),
                "sid": cast(session(n), String),
                "scope": literal("openid profile email"),
                "auth_time": times["old"],
                "amr": literal("pwd"),
            },
        ),
        (
            AuthorizationCode,
            1,
            lambda n: {
                "digest": _digest("code", n),
                "grant_id": grant(n),
                "redirect_uri": literal("https://app.bench.example/callback"),
                "expires_at": times["old"],
                "used_at": times["old"],
            },
        ),
        (
            LogoutDelivery,
            1,
            lambda n: {
                "id": _uuid("delivery")(n),
                "client_id": literal(client_id),
                "sub": cast(user(n), String),
                "sid": cast(_uuid("ended session")(n), String),
                "next_attempt_at": literal(None, UtcDateTime),
                "delivered_at": times["old"],
            },
        ),
        (
            Mail,
            1,
            lambda n: {
                "id": _uuid("mail")(n),
                "kind": literal("new_browser"),
                "address": literal("person") + cast(n, String) + literal("@bench.example"),
                "next_attempt_at": literal(None, UtcDateTime),
                "delivered_at": times["old"],
            },
        ),
        (
            Token,
            TOKENS_PER_GRANT,
            lambda n: {
                "jti": func.md5(_text("jti", n)),
                "grant_id": grant(n // TOKENS_PER_GRANT),
                "scope": literal("openid profile email"),
                "issued_at": times["old"],
                "expires_at": times["young"],
                "refresh_digest": _digest("refresh", n),
                "refresh_expires_at": long,
                "refresh_used_at": times["young"],
            },
        ),
    )
    with app.app_context():
        _give_md5_to_sqlite()
        for model, times_each, columns in tables:
            begin = time.monotonic()
            for start in range(0, rows * times_each, STEP):
                _insert(model, start, min(start + STEP, rows * times_each), columns)
            db.session.commit()
            if rows > STEP:
                name = model.__table__.name  # type: ignore[attr-defined]
                say(f"{rows * times_each:,} {name} in {time.monotonic() - begin:.0f} s")
        _analyze()


def people(app: Flask, rows: int, say: Callable[[str], None]) -> None:
    """So many users, some disabled, unverified or in a group, and an event for each; commits."""

    def columns(n: Number) -> dict[str, Any]:
        now = literal(clock.now(), UtcDateTime)
        return {
            "id": _uuid("user")(n),
            "email": _text("user", n) + "@bench.example",
            "email_verified": n % 777 != 0,
            "name": _text("Family Person ", n),
            "name_key": _text("family person ", n),
            "password_hash": literal("x"),
            "groups": case((n % 1000 == 0, literal(["board"], JSON)), else_=literal([], JSON)),
            "disabled_at": case((n % 500 == 0, now), else_=None),
        }

    with app.app_context():
        _give_md5_to_sqlite()
        now = clock.now()
        for start in range(0, rows, STEP):
            numbers = range(start, min(start + STEP, rows))
            _insert(User, start, numbers.stop, columns)
            db.session.execute(
                insert(AuditEvent),
                [
                    {
                        "id": uuid4(),
                        "at": now - timedelta(days=90) * (n / rows),
                        "name": "signed_in",
                        "user_id": user_id(n),
                        "fields": "{}",
                    }
                    for n in numbers
                ],
            )
            say(f"{numbers.stop:,} people")
        db.session.add(Group(name="board"))
        db.session.commit()
        _analyze()


_AGES = {"old": 2, "young": 1}  # days ago


def _analyze() -> None:
    dialects.without_time_limit()
    db.session.execute(text("ANALYZE"))
    db.session.commit()


def _insert(model: type, start: int, end: int, columns: Callable[[Number], dict[str, Any]]) -> None:
    # A hundred thousand rows can take longer than the program allows a statement of a request.
    dialects.without_time_limit()
    numbers = select(literal(start).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.n + 1).where(numbers.c.n < end - 1))
    values = columns(numbers.c.n)
    # The columns that are not named get the defaults of the model.
    db.session.execute(
        insert(model).from_select(list(values), select(*values.values()).select_from(numbers))
    )


def _uuid(kind: str) -> Callable[[Number], Number]:
    """The same identifier for the same number, spread over the index as random ones are."""
    return lambda n: cast(func.md5(_text(kind, n)), Uuid)


def _digest(kind: str, n: Number) -> Number:
    return literal("sha256:") + func.md5(_text(kind, n)) + func.md5(_text(kind + "'", n))


def _text(prefix: str, n: Number) -> Number:
    return literal(prefix, String) + cast(n, String)


def _give_md5_to_sqlite() -> None:
    if db.engine.dialect.name == "sqlite":
        raw: Any = db.session.connection().connection.driver_connection
        raw.create_function(
            "md5", 1, lambda value: hashlib.md5(value.encode()).hexdigest(), deterministic=True
        )
