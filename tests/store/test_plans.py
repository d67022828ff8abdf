"""On a big PostgreSQL database no request reads a table from end to end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import create_engine, inspect, select, text

from sso import clock, create_app
from sso.config import images
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import ScimResource, User
from sso.scim import filters
from sso.store import (
    exchanges,
    identities,
    migrations,
    scim_deliveries,
    scim_resources,
    users,
)
from sso.store.lists import PAGE
from tests.bench import seed
from tests.support.actors import Browser, RelyingParty
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.exchanges import Chain
from tests.support.factories import ensure_keys, make_client, make_user, register_client
from tests.support.logos import PNG
from tests.support.processes import SECRET_KEY
from tests.support.second_factors import enrol_totp
from tests.support.statements import watched

ROWS = 5000
CLIENTS = 500
READ_WHOLE = {
    "signing_keys",
    "imported_hashes",
    "webhooks",
    "scim_receivers",
    "attributes",
    "branding",
    "alembic_version",
}  # a handful of rows, needed all together

# The person of the story signs in without a second factor.
FACTORS_OF_OTHERS = (
    "INSERT INTO passkeys (id, user_id, name, credential_id, public_key, created_at)"
    " SELECT id, id, 'x', id, 'x', now() FROM users WHERE email <> :without",
    "INSERT INTO totp_secrets (user_id, sealed_secret, created_at)"
    " SELECT id, 'x', now() FROM users WHERE email <> :without",
    "INSERT INTO recovery_codes (user_id, digest, created_at)"
    " SELECT id, 'x', now() FROM users WHERE email <> :without",
    "INSERT INTO mail_tokens"
    " (id, digest, purpose, user_id, address, bound_to, created_at, expires_at)"
    " SELECT id, id, 'reset', id, email, 'x', now(), now() FROM users WHERE email <> :without",
    "INSERT INTO client_origins (client_id, origin)"
    " SELECT client_id, 'https://' || client_id || '.example' FROM clients WHERE :without <> ''",
    "INSERT INTO audit_events (id, at, name, user_id, fields)"
    " SELECT id, now() - random() * interval '90 days', 'signed_in', CAST(id AS text), '{}'"
    " FROM users WHERE email <> :without",
    "UPDATE users SET last_active_at = now() - random() * interval '180 days'"
    " WHERE email <> :without",
    "INSERT INTO groups (id, name, version, created_at, updated_at)"
    " SELECT id, CAST(id AS text), 1, now(), now() FROM users WHERE email <> :without",
    "INSERT INTO group_owners (group_id, user_id, created_at)"
    " SELECT id, id, now() FROM users WHERE email <> :without",
    "INSERT INTO identities (id, user_id, provider, issuer, subject, linked_at)"
    " SELECT id, id, 'x', 'https://x.example', CAST(id AS text), now()"
    " FROM users WHERE email <> :without",
    "INSERT INTO upstream_sessions (id, identity_id, session_id, sid, amr, created_at, checked_at)"
    " SELECT s.id, u.id, s.id, CAST(s.id AS text), 'pwd', now(), now()"
    " FROM browser_sessions s JOIN users u ON u.id = s.user_id WHERE u.email <> :without",
    "INSERT INTO waiting_sign_ins (digest, client_id, resume, expires_at)"
    " SELECT id, (SELECT min(client_id) FROM clients), 'x', now() FROM users"
    " WHERE email <> :without",
    "INSERT INTO device_codes (digest, user_code_digest, client_id, address, program,"
    " interval, created_at, expires_at, grant_id)"
    " SELECT id, id, client_id, '', '', 5, now(), now(), id FROM grants WHERE :without <> ''",
    "INSERT INTO saml_sessions (grant_id, name_id, name_id_format)"
    " SELECT id, CAST(id AS text), 'x' FROM grants WHERE :without <> ''",
    "ANALYZE users, saml_sessions, identities, upstream_sessions, audit_events, groups, passkeys,"
    " totp_secrets, recovery_codes, mail_tokens, clients, client_logos, client_origins,"
    " waiting_sign_ins, device_codes, groups, group_owners",
)

Executed = list[tuple[str, Any]]


@pytest.fixture(scope="module")
def app(postgresql_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """An application on a database in which looking through a table is no good plan."""
    server = create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text("CREATE DATABASE plans"))
    url = postgresql_url.rpartition("/")[0] + "/plans"
    environ = {"SSO_SECRET_KEY": SECRET_KEY, "SSO_DATABASE_URL": url}
    made = create_app(environ, tmp_path_factory.mktemp("plans"))
    with made.app_context():
        migrations.upgrade()
        ensure_keys(SECRET_KEY)
        for number in range(CLIENTS):
            client, _ = register_client(
                name=f"Client {number}",
                redirect_uris=["https://books.example/callback"],
                logo=images.parse(PNG, 1000),
            )
        db.session.commit()
        client_id = client.client_id
    seed.fill(made, client_id, ROWS, print)
    with made.app_context():
        for statement in FACTORS_OF_OTHERS:
            db.session.execute(text(statement), {"without": seed.email(7)})
        db.session.commit()
    yield made
    with made.app_context():
        db.session.remove()
        db.engine.dispose()
    with server.connect() as connection:
        connection.execute(text("DROP DATABASE plans WITH (FORCE)"))
    server.dispose()


@contextmanager
def executed(app: Flask) -> Iterator[Executed]:
    """The statements of a block with their parameters."""
    seen: Executed = []

    with app.app_context():
        engine = db.engine
    with watched(engine, lambda statement, parameters: seen.append((statement, parameters))):
        yield seen


def scanned(plan: dict[str, Any]) -> set[str]:
    """The tables that a plan reads from end to end."""
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return found.union(*(scanned(below) for below in plan.get("Plans", [])))


def tables_read_whole(app: Flask, statements: Executed, *settings: str) -> dict[str, set[str]]:
    """By statement, the big tables that PostgreSQL would read from end to end."""
    found = {}
    with app.app_context():
        connection = db.session.connection()
        for setting in settings:
            connection.exec_driver_sql(f"SET LOCAL {setting}")
        for statement, parameters in statements:
            if statement.startswith("SET "):  # a limit, which has no plan
                continue
            answer = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
            explained = answer.scalar_one()
            plans = json.loads(explained) if isinstance(explained, str) else explained
            if tables := scanned(plans[0]["Plan"]) - READ_WHOLE:
                found[statement] = tables
    return found


def story(app: Flask, client: RelyingParty) -> None:
    """Everything that people and backends do."""
    email, password = seed.email(7), seed.PASSWORD
    browser = Browser(app)
    browser.sign_in(email, "not the password")
    browser.authorize(client)
    browser.sign_in(email, password)
    browser.allow()
    again = browser.authorize(client)
    first = client.exchange(again.code).get_json()
    tokens = client.refresh(first["refresh_token"]).get_json()
    assert client.refresh(first["refresh_token"]).status_code == 200
    assert client.userinfo(tokens["access_token"]).status_code == 200
    assert client.introspect(tokens["access_token"]).get_json()["active"]
    assert client.introspect(tokens["refresh_token"]).get_json()["active"]
    assert client.exchange(again.code).status_code == 400
    client.revoke(tokens["access_token"])
    client.revoke(tokens["refresh_token"])
    other = Browser(app)
    other.sign_in(email, password)
    assert "Where you are signed in" in other.open("/api/auth/account").html
    other.submit(action="end_other_sessions")
    other.open("/api/auth/account")
    other.submit(action="withdraw", client=client.client_id)
    enrol_totp(other)
    other.open("/api/auth/account/factors")
    other.open("/api/auth/sign-out")
    other.submit(decision="sign_out")
    Browser(app).open(f"/api/auth/oauth2/end-session?id_token_hint={first['id_token']}")
    app.test_client().options("/api/auth/oauth2/token", headers={"Origin": "https://a.example"})


def test_no_request_reads_a_table_from_end_to_end(app: Flask) -> None:
    client = make_client(app)
    with executed(app) as statements:
        story(app, client)
    assert len(statements) > 40
    assert tables_read_whole(app, statements) == {}


def test_exchanging_tokens_reads_no_table_from_end_to_end(app: Flask) -> None:
    """Nor does the end of a backend, which revokes what it got."""
    make_user(app)
    chain = Chain(app, Browser(app))
    with executed(app) as statements:
        token = chain.exchanged()
        assert chain.docs.introspect(token).get_json()["active"]
        chain.docs.revoke(token)
        with app.app_context():
            exchanges.end_of_client(chain.docs.client_id)
            db.session.commit()
    found = tables_read_whole(app, [one for one in statements if "apis" not in one[0]])
    assert found == {}


# But for "anywhere", which says that it takes longer, and the overview, which counts.
ADMIN_PAGES = (
    "people",
    "people?q=user12",
    "people?state=disabled",
    "people?state=invited",
    "people?state=unverified",
    "people?state=factor",
    "people?state=active",
    "people?state=inactive",
    "people?group=sso-administrators",
    "person?id={id}",
    "audit",
    "audit?who={id}&event=signed_in",
    "groups",
    "keys",
    "emails",
    "emails?state=failed",
)


def test_no_admin_page_reads_a_table_from_end_to_end(app: Flask) -> None:
    ada = sign_in_staff(app, f"ada{uuid4().hex}@example.com")
    with executed(app) as statements:
        for path in ADMIN_PAGES:
            page = ada.open(f"{ADMIN}/{path.format(id=seed.user_id(7))}")
            assert page.status == 200, path
        ada.open(ada.open(f"{ADMIN}/people").html.partition('rel="next" href="')[2].split('"')[0])
        assert "user10" in ada.page.html
    assert len(statements) > 20
    # Totals read an index up to 10,000 rows, which is more than this table has.
    listed = [one for one in statements if not one[0].startswith("SELECT count(*)")]
    # The members of a page of groups: of 5000 groups, 50 are cheaper read whole.
    of_page = [one for one in listed if one[0].startswith("SELECT groups.name, (SELECT count(*)")]
    assert of_page
    assert tables_read_whole(app, [one for one in listed if one not in of_page]) == {}
    assert tables_read_whole(app, of_page, "enable_seqscan = off") == {}


def test_the_list_of_sessions_reads_no_table_from_end_to_end(app: Flask) -> None:
    ada = sign_in_staff(app, f"ada{uuid4().hex}@example.com")
    with executed(app) as statements:
        for query in ("", "?sort=oldest", f"?q={seed.user_id(7)}"):
            assert ada.open(f"{ADMIN}/sessions{query}").status == 200
        link = ada.open(f"{ADMIN}/sessions").html.partition('rel="next" href="')[2]
        ada.open(link.split('"')[0].replace("&amp;", "&"))
        assert "page 2" in ada.page.html
    listed = [each for each in statements if not each[0].startswith("SELECT count(*)")]
    # The email addresses and applications of a page: of 5000 rows, 50 are cheaper read whole.
    of_page = [each for each in listed if f"_1_{PAGE})" in each[0]]
    assert len(of_page) >= 6
    assert tables_read_whole(app, [each for each in listed if each not in of_page]) == {}
    assert tables_read_whole(app, of_page, "enable_seqscan = off") == {}


def test_finding_users_reads_no_table_from_end_to_end(app: Flask) -> None:
    with executed(app) as statements, app.app_context():
        for given in ("user12", "User 12", "nobody", str(seed.user_id(7))[:9], "user"):
            users.matching(given)
    assert len(statements) > 10
    wanted = [one for one in statements if " users" in one[0]]
    assert tables_read_whole(app, wanted) == {}


def rows_read(plan: dict[str, Any]) -> int:
    """How many rows a plan has read from tables and indexes, with those that it threw away."""
    below = [rows_read(part) for part in plan.get("Plans", [])]
    thrown = sum(plan.get(f"Rows Removed by {by}", 0) for by in ("Filter", "Index Recheck"))
    own: float = (plan["Actual Rows"] + thrown) * plan["Actual Loops"]
    return sum(below) + (round(own) if "Scan" in plan["Node Type"] else 0)


@pytest.mark.parametrize("beginning", ["user0", "user25", "user4", "user4999", "user", "zz", "a"])
def test_a_page_of_people_reads_what_it_shows(app: Flask, beginning: str) -> None:
    """Wherever the email addresses lie that begin with the text, in both directions.

    Up to a few pages of matches are sorted, if that is less work than to read them in order.
    """
    with app.app_context(), executed(app) as statements:
        order, people = users.order_of(beginning), users.with_email(beginning)
        page = order.page(people, None)
        for _ in range(2):
            if page.next:
                page = order.page(people, page.next)
        if page.previous:
            order.page(people, page.previous)
        users.matching(beginning)
    by_email = [each for each in statements if "~<~" in each[0] and "users.email" in each[0]]
    assert by_email
    read_few(app, by_email)


def read_few(app: Flask, statements: Executed, most: int = 300) -> None:
    with app.app_context():
        db.session.execute(text("ANALYZE users"))
        connection = db.session.connection()
        for statement, parameters in statements:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            (plan,) = connection.exec_driver_sql(explain, parameters).scalar_one()
            assert rows_read(plan["Plan"]) <= most, statement


@pytest.mark.parametrize("beginning", ["", "user", "user 4", "user 25", "zz"])
def test_a_page_of_names_reads_what_it_shows(app: Flask, beginning: str) -> None:
    """However many names begin with the text, or there is no text, in both directions."""
    if beginning != "zz":
        with app.app_context():
            db.session.execute(text("UPDATE users SET name_key = lower(name)"))
            db.session.commit()
    with app.app_context(), executed(app) as statements:
        people = users.with_name(beginning) if beginning else users.with_email("")
        page = users.BY_NAME.page(people, None)
        for _ in range(2):
            if page.next:
                page = users.BY_NAME.page(people, page.next)
        if page.previous:
            users.BY_NAME.page(people, page.previous)
    read_few(app, [each for each in statements if "ORDER BY users.name_key" in each[0]], 500)


@pytest.mark.parametrize(
    ("query", "number"),
    [
        *((f'{name} co "{part}"', 1) for name in ("userName", "emails") for part in
          ("user0@", "USER2500@", "ser4999@bench")),
        *((f'displayName {operator} "{part}"', 1)
          for operator, part in (("co", "er 4999"), ("sw", "User 4999"), ("eq", "user 25"))),
        *((f'userName {operator} "user4999@bench.example"', 1) for operator in ("sw", "eq")),
        ('emails sw "user4999@"', 1), ('emails ew "r4999@bench.example"', 1),
        ('displayName co "nobody"', 0), ('userName co "qqq" or emails co "zzz"', 0),
    ],
)  # fmt: skip
def test_a_filter_of_scim_reads_what_it_finds(app: Flask, query: str, number: int) -> None:
    """A text anywhere is found by an index, wherever the rows lie."""
    with app.app_context():
        db.session.execute(text("UPDATE users SET name_key = lower(name) WHERE name_key = ''"))
        # As autovacuum does: what was inserted a moment ago waits in a list.
        db.session.execute(text("SELECT gin_clean_pending_list('ix_users_trigrams')"))
        db.session.commit()
        assert scim_resources.has_trigrams()
    with executed(app) as statements, app.app_context():
        total, _ = scim_resources.users_where(filters.condition(User, query), 0, 100)
    assert total == number
    read_few(app, [each for each in statements if " users" in each[0]])


DELIVERIES = (
    "INSERT INTO scim_receivers (client_id) SELECT client_id FROM clients ORDER BY client_id"
    " LIMIT 10",
    "INSERT INTO scim_resources (id, client_id, kind, subject_id, name, attempts, created_at)"
    " SELECT gen_random_uuid(), client_id, 'user', u.id, u.email, 0, now()"
    " FROM scim_receivers, users u WHERE u.email LIKE 'user%'",
    "INSERT INTO scim_deliveries (id, client_id, kind, subject_id, name, started_at, attempted_at,"
    " attempts, action) SELECT id, client_id, kind, subject_id, name, now(),"
    " now() - random() * interval '7 days', 1, CASE WHEN random() < 0.99 THEN 'created' END"
    " FROM scim_resources",
    "ANALYZE scim_receivers, scim_resources, scim_deliveries",
)


def test_what_was_sent_by_scim_reads_no_table_from_end_to_end(app: Flask) -> None:
    with app.app_context():
        for statement in DELIVERIES:
            db.session.execute(text(statement))
        db.session.commit()
        client_id = db.session.scalars(text("SELECT min(client_id) FROM scim_receivers")).one()
        subject = str(seed.user_id(7))
    with executed(app) as statements, app.app_context():
        for search, conditions in (
            ("", ()), ("", [scim_deliveries.has_failed()]), (subject, ()),
            ("", [scim_deliveries.is_done()]),
        ):  # fmt: skip
            page = scim_deliveries.of_receiver(client_id, search, *conditions)
            rows = scim_deliveries.NEWEST.page(page, None).rows
            assert rows
            assert scim_deliveries.resources_of(rows[:1])
        assert len(scim_deliveries.newest(client_id, subject, 10)) == 1
        resource = db.session.scalars(
            select(ScimResource).where(
                ScimResource.client_id == client_id, ScimResource.subject_id == UUID(subject)
            )
        ).one()
        resource.attempts = 1
        scim_deliveries.record(resource, action=None, status=503, fault="it answered 503")
        upkeep.purge()
        db.session.rollback()
    about = [each for each in statements if "scim_deliveries" in each[0]]
    assert len(about) >= 8
    assert tables_read_whole(app, about) == {}


def test_signing_out_upstream_reads_no_table_from_end_to_end(app: Flask) -> None:
    sid = str(seed.user_id(9))
    with executed(app) as statements, app.app_context():
        live = identities.meant_by("https://x.example", None, sid)
        assert len(identities.meant_by("https://x.example", sid, None)) == 1
        identities.sessions_of(UUID(sid), sid)
        identities.due("x", clock.now() - timedelta(days=1), 20)
        identities.due_people("x", clock.now() - timedelta(days=1), 20)
        identities.find_waiting("digest")
    assert live == []
    assert len(statements) >= 6
    assert tables_read_whole(app, statements) == {}


def test_a_missing_index_would_be_seen(app: Flask) -> None:
    by_name = "SELECT * FROM users WHERE name = %(name)s"
    assert tables_read_whole(app, [(by_name, {"name": "Dana"})]) == {by_name: {"users"}}


def test_what_a_deletion_takes_along_is_found_by_an_index(app: Flask) -> None:
    with app.app_context():
        found = inspect(db.engine)
        for table in found.get_table_names():
            indexed = {index["column_names"][0] for index in found.get_indexes(table)}
            indexed.add(found.get_pk_constraint(table)["constrained_columns"][0])
            for key in found.get_foreign_keys(table):
                assert key["constrained_columns"][0] in indexed, (table, key)
