"""What a page of each long list reads does not grow with the list, on both databases."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Select, create_engine, select, text

import sso.endpoints.admin
import sso.store
from sso import clock, create_app
from sso.audit import rows as events
from sso.endpoints.admin import audit_trail
from sso.endpoints.admin import keys as token_pages
from sso.extensions import db
from sso.models import Client, ImportedHash, ScimReceiver, SigningKey, Token, User, Webhook
from sso.store import (
    clients,
    expired,
    keys,
    migrations,
    named_groups,
    outbox,
    provisioning,
    refusals,
    scim_deliveries,
    sessions,
    users,
    webhooks,
)
from sso.store.lists import PAGE, Order
from tests.bench import seed
from tests.store.test_plans import rows_read
from tests.support.databases import url_of
from tests.support.factories import ensure_keys, register_client
from tests.support.processes import SECRET_KEY
from tests.support.statements import watched

ROWS = 6000
SCAN = r"SCAN \w+"  # of SQLite, a table or an index
MINUTE = timedelta(minutes=1)
MOST = 600  # rows of PostgreSQL for a page of 50, there and back
# Instructions of SQLite's machine; reading all rows takes it at least four for each.
MOST_STEPS, WHOLE = 15_000, 4 * ROWS
ENDS = ("user0@", "user3000@", "user5999@", "user", "user3", "zz", "a")

Statements = Callable[[], Sequence[Select[Any]]]

LISTS: dict[str, tuple[Order, Statements]] = {
    "people by email": (
        users.order_of(""),
        lambda: [users.with_email("")],
    ),
    "people in a state": (
        users.order_of("", has_state=True),
        lambda: [
            users.with_email(beginning).where(condition())
            for beginning in ("", *ENDS)
            for condition in (users.is_disabled, users.is_invited, users.is_unverified)
        ],
    ),
    "people by a beginning": (
        users.BY_BEGINNING,
        lambda: [users.with_email(beginning) for beginning in ENDS],
    ),
    "people by name": (
        users.BY_NAME,
        lambda: [
            users.with_email(""),
            *(users.with_name(name) for name in ("user 0", "user 30", "user 5999", "zz")),
            users.with_name("user 30").where(users.is_disabled()),
        ],
    ),
    "people by activity": (
        users.BY_ACTIVITY,
        lambda: [select(User).where(condition) for condition in
                 (users.is_active(30), users.is_active(1), users.is_inactive(3))],
    ),
    "sessions": (sessions.NEWEST_FIRST, lambda: [sessions.live()]),
    "groups": (named_groups.BY_NAME, lambda: [named_groups.containing("")]),
    "mails": (outbox.NEWEST_MAILS, lambda: [outbox.unsent_mails()]),
    "audit events": (
        audit_trail._NEWEST,  # the page has no other name for it
        lambda: [
            events.matching(),
            events.matching(user_id=seed.user_id(3000)),
            events.matching(names=["signed_in"]),
        ],
    ),
    "applications": (
        clients.NEWEST_FIRST,
        lambda: [
            clients.selected(is_disabled=is_disabled, is_agent=is_agent)
            for is_disabled in (None, True, False) for is_agent in (None, True, False)
        ],
    ),
    "API tokens": (
        keys.NEWEST_API_TOKENS,
        lambda: [keys.selected_api_tokens()],
    ),
    "API tokens by name": (keys.API_TOKENS_BY_NAME, lambda: [keys.selected_api_tokens()]),
    "API tokens by end": (keys.API_TOKENS_BY_END, lambda: [keys.selected_api_tokens()]),
    "refusals": (
        refusals.NEWEST_FIRST,
        lambda: [refusals.of(None), refusals.of(["books"]), refusals.of(["agent3000"])],
    ),
    "people at a SCIM service": (
        provisioning.NEWEST,
        lambda: [
            provisioning.of_receiver("books"),
            *(provisioning.of_receiver("books", condition()) for condition in
              (provisioning.is_there, provisioning.is_waiting, provisioning.is_given_up)),
        ],
    ),
    "SCIM deliveries": (
        scim_deliveries.NEWEST,
        lambda: [
            scim_deliveries.of_receiver("books", text, *conditions)
            for text in ("", *(seed.user_id(number) for number in (0, 3000, 5999)))
            for conditions in
            ((), (scim_deliveries.is_done(),), (scim_deliveries.has_failed(),))
        ],
    ),
    "webhook deliveries": (
        webhooks.NEWEST_DELIVERIES,
        lambda: [
            webhooks.deliveries_of(db.session.scalars(select(Webhook.id)).one(), *conditions)
            for conditions in ((), (webhooks.is_delivered(),), (webhooks.is_waiting(),),
                               (webhooks.is_given_up(),))
        ],
    ),
}  # fmt: skip
# A list that has a test of its own.
OTHERS = {"sso.store.users.CONTAINING": "reads an index; see test_text_anywhere"}
# Half of the rows have one state, half another, and some in the middle a third.
FILL = (
    "CREATE TEMPORARY TABLE numbered AS SELECT id, name, last_active_at AS at,"
    " row_number() OVER (ORDER BY last_active_at) AS n FROM users",
    "UPDATE users SET name_key = lower(name)",
    "UPDATE users SET disabled_at = last_active_at, password_hash = NULL, email_verified = false"
    " WHERE id IN (SELECT id FROM numbered WHERE n BETWEEN 2950 AND 3050)",
    "INSERT INTO groups (id, name, version, created_at, updated_at)"
    " SELECT id, email, 1, created_at, updated_at FROM users",
    "INSERT INTO audit_events (id, at, name, user_id, fields)"
    " SELECT id, last_active_at, 'signed_in', 'x', '{}' FROM users",
    # Of clients that got no refresh token; all are in use.
    "UPDATE tokens SET refresh_digest = NULL, refresh_expires_at = NULL,"
    " expires_at = (SELECT max(expires_at) FROM browser_sessions)",
    "INSERT INTO clients (client_id, secret_digest, first_party, require_pkce, require_mfa,"
    " disabled_within_limits, registration, disabled_at, created_at, updated_at, version,"
    " client_metadata) SELECT 'agent' || n, 'x', false, true, false, false,"
    " CASE WHEN n > 3000 THEN 'document' END, CASE WHEN n BETWEEN 2990 AND 3010 THEN at END,"
    " at, at, 1, '{}' FROM numbered",
    "INSERT INTO api_tokens (id, name, digest, scope, created_at, expires_at, revoked_at)"
    " SELECT id, 'token ' || n, 'x' || n, 'x', at,"
    " CASE WHEN n BETWEEN 2990 AND 2999 THEN at"
    " ELSE (SELECT max(expires_at) FROM browser_sessions) END,"
    " CASE WHEN n > 3000 THEN at END FROM numbered",
    "INSERT INTO refusals (id, request_id, at, bucket, name, client_id, details)"
    " SELECT id, 'x' || n, at, n % 60, 'x', CASE WHEN n > 10 THEN 'books' ELSE 'agent3000' END,"
    " '{}' FROM numbered",
    "INSERT INTO scim_resources (id, client_id, kind, subject_id, name, is_active, is_leaving,"
    " version, attempts, created_at, next_attempt_at, last_fault)"
    " SELECT id, 'books', 'user', id, name, n < 2990, false, 1, 1, at,"
    " CASE WHEN n > 3000 THEN at END, CASE WHEN n > 2980 THEN 'x' END FROM numbered",
    "INSERT INTO scim_deliveries (id, client_id, kind, subject_id, name, started_at, attempted_at,"
    " attempts, action) SELECT id, 'books', 'user', id, name, at, at, 1,"
    " CASE WHEN n < 3000 THEN 'created' END FROM numbered",
    "INSERT INTO webhook_deliveries (id, webhook_id, event, body, attempts, created_at,"
    " next_attempt_at, delivered_at) SELECT n.id, w.id, 'x', '{}', 1, n.at,"
    " CASE WHEN n > 3000 THEN n.at END, CASE WHEN n < 2990 THEN n.at END"
    " FROM numbered n, webhooks w",
    "DROP TABLE numbered",
    "ANALYZE",
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flask]:
    """An application with thousands of people, sessions, groups, mails and events."""
    environ = {"SSO_SECRET_KEY": SECRET_KEY}
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_url")
        engine = create_engine(server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text("DROP DATABASE IF EXISTS rows_read WITH (FORCE)"))
            connection.execute(text("CREATE DATABASE rows_read"))
        engine.dispose()
        environ["SSO_DATABASE_URL"] = url_of(server, "rows_read")
    made = create_app(environ, tmp_path_factory.mktemp("rows"))
    with made.app_context():
        migrations.upgrade()
        ensure_keys(SECRET_KEY)
        register_client(client_id="books", name="Books", redirect_uris=["https://a.example/"])
        db.session.commit()
    tokens, seed.TOKENS_PER_GRANT = seed.TOKENS_PER_GRANT, 1
    try:
        seed.fill(made, "books", ROWS, print)
    finally:
        seed.TOKENS_PER_GRANT = tokens
    with made.app_context():
        # No two at the same moment.
        ids, now = db.session.scalars(select(User.id)).all(), clock.now()
        sessions.note_all_active({id: now - n * MINUTE for n, id in enumerate(ids)})
        db.session.add(Webhook(url="https://hook.example/", events=[], sealed_secret="x"))
        db.session.add(ScimReceiver(client_id="books"))
        db.session.flush()
        for statement in FILL:
            db.session.execute(text(statement))
        db.session.commit()
        if request.param == "postgresql":
            db.session.execute(text("SELECT gin_clean_pending_list('ix_users_trigrams')"))
            db.session.commit()
    yield made
    with made.app_context():
        db.session.remove()
        db.engine.dispose()


def costs(app: Flask, read: Callable[[], object]) -> list[int]:
    """Return what the statements cost: rows on PostgreSQL, thousands of steps on SQLite."""
    with app.app_context():
        if db.engine.dialect.name == "sqlite":
            return [steps(read)]
        made: list[tuple[str, Any]] = []
        with watched(db.engine, lambda statement, values: made.append((statement, values))):
            read()
        connection = db.session.connection()
        plans = [
            connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values)
            for statement, values in made
            if statement.startswith("SELECT")
        ]
        return [rows_read(plan.scalar_one()[0]["Plan"]) for plan in plans]


def steps(read: Callable[[], object]) -> int:
    """Return how many instructions SQLite's machine executes, to within a hundred."""
    count = 0

    def note() -> int:
        nonlocal count
        count += 100
        return 0

    raw: Any = db.session.connection().connection.driver_connection
    raw.set_progress_handler(note, 100)
    try:
        read()
    finally:
        raw.set_progress_handler(None, 0)
    return count


def there_and_back(order: Order, statement: Select[Any], cursor: str | None) -> None:
    """Read a page, the next one, and the first one again."""
    page = order.page(statement, cursor)
    if page.next:
        page = order.page(statement, page.next)
    if page.previous:
        order.page(statement, page.previous)


def places(order: Order, statement: Select[Any]) -> list[str | None]:
    """Return the cursors of pages at the beginning, in the middle and at the end of a list."""
    rows = order.page(statement, None, ROWS).rows
    few = len(rows) <= 3 * PAGE
    return [None] if few else [None, *(order.cursor(rows[n]) for n in (len(rows) // 2, -PAGE - 10))]


def is_few(app: Flask, read: Callable[[], object]) -> bool:
    with app.app_context():
        most = MOST if db.engine.dialect.name == "postgresql" else MOST_STEPS
    return max(costs(app, read)) <= most


@pytest.mark.parametrize("name", LISTS)
def test_a_page_reads_what_it_shows(app: Flask, name: str) -> None:
    order, statements = LISTS[name]
    with app.app_context():
        each = statements()
        at = [(statement, cursor) for statement in each for cursor in places(order, statement)]
    for statement, cursor in at:
        read = partial(there_and_back, order, statement, cursor)
        assert is_few(app, read), (name, cursor, str(statement), costs(app, read))


@pytest.mark.parametrize(
    "order", [keys.NEWEST_API_TOKENS, keys.API_TOKENS_BY_NAME, keys.API_TOKENS_BY_END]
)
@pytest.mark.parametrize("state", token_pages.TOKEN_STATES)
def test_tokens_of_one_state_are_read_at_most_once(app: Flask, order: Order, state: str) -> None:
    """Of thousands, 0.3 ms. They are few: 90 days after their end, they are deleted."""
    for name in ("", "token 0", "token 3000", "token 5999", "token"):
        with app.app_context():
            tokens = keys.selected_api_tokens(name, state)
            is_postgresql = db.engine.dialect.name == "postgresql"
        spent = max(costs(app, lambda: order.page(tokens, None)))  # noqa: B023  # called at once
        assert spent <= (ROWS if is_postgresql else 40 * ROWS), (name, state)


@pytest.mark.parametrize("name", ["User 0", "User 3000", "User 5999", "User", "zz"])
def test_deliveries_with_a_name_are_read_at_most_once(app: Flask, name: str) -> None:
    """Of a week, to one service; by a person's ID they come from an index."""
    with app.app_context():
        deliveries = scim_deliveries.of_receiver("books", name)
        is_postgresql = db.engine.dialect.name == "postgresql"
    spent = max(costs(app, lambda: scim_deliveries.NEWEST.page(deliveries, None)))
    assert spent <= (ROWS if is_postgresql else 40 * ROWS)


@pytest.mark.parametrize("part", ["user0@", "user3000@", "user5999@", "ser 5999", "user"])
def test_text_anywhere(app: Flask, part: str) -> None:
    """`user list --search`: an index of trigrams; SQLite reads an index, and no row for nothing."""
    with app.app_context():
        is_postgresql = db.engine.dialect.name == "postgresql"
    spent = max(costs(app, lambda: users.listed(part, None, 50)))
    assert spent <= (MOST if is_postgresql else 20 * ROWS)


def test_the_list_of_a_command_reads_what_it_shows(app: Flask) -> None:
    assert is_few(app, lambda: users.listed(None, None, 50))


def test_a_walk_through_all_would_be_seen(app: Flask) -> None:
    unindexed = Order((User.created_at, User.id))
    assert not is_few(app, lambda: there_and_back(unindexed, select(User), None))
    assert not is_few(
        app, lambda: there_and_back(named_groups.BY_NAME, named_groups.containing("zz"), None)
    )


def test_every_list_is_here() -> None:
    """Add a new order to `LISTS`, or, if its rows are few, to `OTHERS` with the reason."""
    orders: dict[int, set[str]] = {}
    for package in (sso.store, sso.endpoints.admin):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, Order):
                    orders.setdefault(id(value), set()).add(f"{module.name}.{name}")
    measured = {id(order) for order, _ in LISTS.values()}
    missing = [
        names for key, names in orders.items() if key not in measured and not names & OTHERS.keys()
    ]
    assert missing == []


# Of the others, there is a handful.
PURGED = [
    number
    for number, expiry in enumerate(expired.EXPIRIES)
    if expiry.table not in (SigningKey, ImportedHash)
]


@pytest.mark.parametrize("number", PURGED)
def test_the_purge_finds_its_candidates_by_an_index(app: Flask, number: int) -> None:
    """Also those that stay: it looks at used codes again until their tokens have expired."""
    expiry = expired.EXPIRIES[number]
    with app.app_context():
        made: list[tuple[str, Any]] = []
        with watched(db.engine, lambda statement, values: made.append((statement, values))):
            expired.delete_batch(expiry, None, 10, 100)
        db.session.rollback()
        connection = db.session.connection()
        is_postgresql = db.engine.dialect.name == "postgresql"
        if is_postgresql:  # small tables are cheaper read whole
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain, whole = ("EXPLAIN", "Seq Scan") if is_postgresql else ("EXPLAIN QUERY PLAN", SCAN)
        for statement, values in made:
            plan = connection.exec_driver_sql(f"{explain} {statement}", values).all()
            assert not re.search(whole, "\n".join(str(row[-1]) for row in plan)), statement
        db.session.rollback()


def test_the_purge_reads_no_token_that_is_in_use(app: Flask) -> None:
    """Each of its batches read all tokens without a refresh token."""
    for expiry in expired.EXPIRIES[:2]:
        assert expiry.table is Token
        with app.app_context():
            is_postgresql = db.engine.dialect.name == "postgresql"
        spent = costs(app, lambda: expired.delete_batch(expiry, None, 10, 100))  # noqa: B023  # at once
        assert max(spent) <= (10 if is_postgresql else 1000)


def test_the_purge_of_agents_reads_no_grants_of_others(app: Flask) -> None:
    """SQLite that knows how many grants a client has on average read all of them for each agent."""
    expiry = next(expiry for expiry in expired.EXPIRIES if expiry.table is Client)

    def purge() -> None:
        batch = expired.delete_batch(replace(expiry, keep=timedelta()), None, 10, 100)
        assert batch.deleted == 10
        db.session.rollback()

    assert is_few(app, purge)
