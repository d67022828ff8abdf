"""CPU time inside one process: each scenario, the bare route, the baselines of code and refresh.

A baseline is what no server of this kind can do without, in one Flask route: the two signatures,
and the SQL run by hand in SQLAlchemy Core with one commit.
"""

import gc
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from flask import Flask
from sqlalchemy import Connection, Engine, bindparam, event, insert, select, update

from sso import clock
from sso.extensions import db
from sso.models import AuthorizationCode, BrowserSession, Client, Grant, Token, User
from sso.store import prepared
from tests.bench import bare
from tests.bench.scenarios import BARE, EXCHANGE, REFRESH, SCENARIOS, World
from tests.bench.transport import Answer, Request, in_process
from tests.support.statements import watched

WITH_BASELINE = (EXCHANGE, REFRESH)

_CLIENT, _CODE, _GRANT, _SESSION, _TOKEN, _USER = (
    prepared.table(model)
    for model in (Client, AuthorizationCode, Grant, BrowserSession, Token, User)
)

_FIND_CLIENT = select(_CLIENT).where(_CLIENT.c.client_id == bindparam("id"))
_USE_CODE = (
    update(_CODE)
    .where(
        _CODE.c.digest == bindparam("given"),
        _CODE.c.used_at.is_(None),
        _CODE.c.expires_at > bindparam("now"),
    )
    .values(used_at=bindparam("now"))
    .returning(_CODE)
)
_USE_TOKEN = (
    update(_TOKEN)
    .where(
        _TOKEN.c.refresh_digest == bindparam("given"),
        _TOKEN.c.refresh_used_at.is_(None),
        _TOKEN.c.refresh_expires_at > bindparam("now"),
    )
    .values(refresh_used_at=bindparam("now"))
    .returning(_TOKEN)
)
_FIND_GRANT = (
    select(_GRANT, _USER, _SESSION)
    .select_from(_GRANT.join(_USER).outerjoin(_SESSION, _SESSION.c.id == _GRANT.c.session_id))
    .where(_GRANT.c.id == bindparam("grant"))
)
_ADD_TOKEN = insert(_TOKEN)


def statements(app: Flask, world: World) -> dict[str, tuple[float, float]]:
    """Statements and commits of one request at each scenario."""
    counted = 20
    with app.app_context():
        engine = db.engine
    counts = {}
    for scenario in SCENARIOS[:-1]:
        seen: list[str] = []

        def committed(_: Connection, seen: list[str] = seen) -> None:
            seen.append("COMMIT")

        requests = scenario.make(world, counted)
        event.listen(engine, "commit", committed)
        with watched(engine, lambda sql, _, seen=seen: seen.append(sql)):  # type: ignore[misc]
            answers = in_process(app, requests)
        event.remove(engine, "commit", committed)
        scenario.check(world, answers)
        commits = seen.count("COMMIT")
        counts[scenario.name] = ((len(seen) - commits) / counted, commits / counted)
    return counts


def cpu(app: Flask, world: World, rounds: int, count: int) -> dict[str, float]:
    """Milliseconds of CPU of one request at each scenario and each baseline, in turns.

    The median of the rounds' means; the first round, which warms up, is left out.
    """
    with app.app_context():
        engine = db.engine
    by_hand = _app_by_hand(engine, world.client_id)
    spent: dict[str, list[float]] = {}
    gc.collect()
    gc.freeze()  # as sso.server.gunicorn_conf does
    for number in range(rounds + 1):
        for scenario in SCENARIOS:
            requests = scenario.make(world, count)
            answers = in_process(bare.app if scenario is BARE else app, requests)
            scenario.check(world, answers)
            if number:
                spent.setdefault(scenario.name, []).append(_mean(answers))
        for scenario in WITH_BASELINE:
            with engine.connect() as connection:
                given = _approve_by_hand(connection, world.client_id, count)
            requests = [Request("GET", f"/{scenario.name}/{digest}") for digest in given]
            answers = in_process(by_hand, requests)
            assert {answer.status for answer in answers} == {200}
            if number:
                spent.setdefault(f"baseline of {scenario.name}", []).append(_mean(answers))
    return {name: median(means) for name, means in spent.items()}


def parts(app: Flask, client_id: str, count: int) -> dict[str, float]:
    """Milliseconds of CPU of what the baselines are made of, each by itself."""
    with app.app_context():
        engine = db.engine
    text = secrets.token_bytes(400)
    with engine.connect() as connection:
        given = _approve_by_hand(connection, client_id, 2 * count)
        return {
            "RS256 signature": _each([text] * count, _sign_rs256),
            "ES256 signature": _each([text] * count, _sign_es256),
            "SQL of code exchange": _each(
                given[:count], lambda one: _exchange_by_hand(connection, client_id, one)
            ),
            "SQL of refresh": _each(
                given[count:], lambda one: _refresh_by_hand(connection, client_id, one)
            ),
        }


_RSA_KEY = rsa.generate_private_key(65537, 2048)
_EC_KEY = ec.generate_private_key(ec.SECP256R1())


def _sign_rs256(text: bytes) -> bytes:
    return _RSA_KEY.sign(text, padding.PKCS1v15(), SHA256())


def _sign_es256(text: bytes) -> bytes:
    return _EC_KEY.sign(text, ec.ECDSA(SHA256()))


def _app_by_hand(engine: Engine, client_id: str) -> Flask:
    """Flask routes that do what the baseline is made of, and nothing else."""
    made = Flask(__name__)
    acts = {EXCHANGE.name: _exchange_by_hand, REFRESH.name: _refresh_by_hand}

    @made.get("/<name>/<digest>")
    def baseline(name: str, digest: str) -> dict[str, str]:
        with engine.connect() as connection:
            acts[name](connection, client_id, digest)
        text = digest.encode() * 6
        return {"id_token": _sign_rs256(text).hex(), "access_token": _sign_es256(text).hex()}

    return made


def _mean(answers: list[Answer]) -> float:
    return 1000 * sum(answer.seconds for answer in answers) / len(answers)


def _each(items: list[Any], act: Callable[[Any], object]) -> float:
    act_on = items[len(items) // 10 :]
    for item in items[: len(items) // 10]:  # SQLAlchemy compiles a statement once
        act(item)
    begin = time.thread_time()
    for item in act_on:
        act(item)
    return 1000 * (time.thread_time() - begin) / len(act_on)


def _approve_by_hand(connection: Connection, client_id: str, count: int) -> list[str]:
    """So many grants of one user, each with an unused code and an unused refresh token."""
    now, later = clock.now(), clock.now() + timedelta(hours=1)
    session = connection.execute(select(_SESSION).limit(1)).one()
    digests = []
    for _ in range(count):
        grant_id, digest = uuid4(), secrets.token_hex(32)
        connection.execute(
            insert(_GRANT).values(
                id=grant_id, user_id=session.user_id, client_id=client_id, session_id=session.id,
                sid=str(session.id), scope="openid profile email", auth_time=now, amr="pwd",
            )
        )  # fmt: skip
        connection.execute(
            insert(_CODE).values(
                digest=digest,
                grant_id=grant_id,
                redirect_uri="https://a.example/",
                expires_at=later,
            )
        )
        _insert_token(connection, grant_id, digest)
        digests.append(digest)
    connection.commit()
    return digests


def _exchange_by_hand(connection: Connection, client_id: str, digest: str) -> None:
    connection.execute(_FIND_CLIENT, {"id": client_id}).one()
    grant_id = connection.execute(_USE_CODE, {"given": digest, "now": clock.now()}).one().grant_id
    _finish(connection, grant_id)


def _refresh_by_hand(connection: Connection, client_id: str, digest: str) -> None:
    connection.execute(_FIND_CLIENT, {"id": client_id}).one()
    grant_id = connection.execute(_USE_TOKEN, {"given": digest, "now": clock.now()}).one().grant_id
    _finish(connection, grant_id)


def _finish(connection: Connection, grant_id: Any) -> None:
    connection.execute(_FIND_GRANT, {"grant": grant_id}).one()
    _insert_token(connection, grant_id, secrets.token_hex(32))
    connection.commit()


def _insert_token(connection: Connection, grant_id: Any, digest: str) -> None:
    now, later = clock.now(), clock.now() + timedelta(hours=1)
    values = {
        "jti": secrets.token_urlsafe(16),
        "grant_id": grant_id,
        "scope": "openid profile email",
        "issued_at": now,
        "expires_at": later,
        "refresh_digest": digest,
        "refresh_expires_at": later,
    }
    connection.execute(_ADD_TOKEN, values)
