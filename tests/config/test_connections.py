"""SSO_DATABASE_URL as providers give it, and URLs that could not work."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits.storage import RedisSentinelStorage
from sqlalchemy.engine import make_url

from sso.config.connections import (
    Sentinels,
    checked_database_url,
    checked_redis_url,
    has_several_hosts,
    sentinels,
)
from sso.database import postgresql
from sso.ratelimit import storage

DRIVER = "postgresql+psycopg"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", DRIVER])
def test_schemes_of_postgresql(scheme: str) -> None:
    url = make_url(checked_database_url(f"{scheme}://u:p%40ss@db.example:6432/sso?sslmode=require"))
    assert (url.drivername, url.password, url.port) == (DRIVER, "p@ss", 6432)
    assert url.query == {"sslmode": "require"}
    assert "target_session_attrs" not in postgresql.connect_args(url)


@pytest.mark.parametrize(
    ("given", "hosts", "ports"),
    [
        ("postgresql://u:p@a:5433,b:5434/db?sslmode=require", "a,b", "5433,5434"),
        ("postgres://u:p@pg_1,[::1]:5434/db", "pg_1,::1", "5432,5434"),
        ("postgresql://u:p@a,b", "a,b", "5432,5432"),
        (f"{DRIVER}://u:p@/db?host=a:5433&host=b:5434", "a,b", "5433,5434"),
        (f"{DRIVER}://u:p@/db?host=a,b&port=5433,5434", "a,b", "5433,5434"),
    ],
)
def test_several_hosts(given: str, hosts: str, ports: str) -> None:
    url = make_url(checked_database_url(given))
    _, named = url.get_dialect()().create_connect_args(url)
    assert (named["host"], named["port"]) == (hosts, ports)
    assert (named["user"], named["password"]) == ("u", "p")
    assert has_several_hosts(url)
    assert postgresql.connect_args(url)["target_session_attrs"] == "read-write"


@pytest.mark.parametrize("attribute", ["read-write", "primary"])
def test_the_kind_of_server_that_the_url_asks_for(attribute: str) -> None:
    url = make_url(checked_database_url(f"postgresql://a,b/db?target_session_attrs={attribute}"))
    assert url.query["target_session_attrs"] == attribute
    assert "target_session_attrs" not in postgresql.connect_args(url)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("postgresql://u:hunter2@a,b/db?target_session_attrs=any", "read-write"),
        ("postgresql://u:hunter2@a/db?target_session_attrs=standby", "read-write"),
        ("postgresql://u:hunter2@a:x,b/db", "host1:5432"),
        ("postgresql://u:hunter2@a,,b/db", "host1:5432"),
        ("postgresql://u:hunter2@a:x/db", "SQLAlchemy URL"),
        ("postgresql://u:hunter2@/db?host=a:1:2&host=b", "host1:5432"),
        ("postgresql://u:hunter2@/db?host=[::1]:1&host=b", "host1:5432"),
        ("postgresql://u:hunter2@/db?host=a,b&port=1,2,3", "host1:5432"),
        ("postgresql://u:hunter2@/db?host=a:1&host=b:2&port=3", "host1:5432"),
        ("postgresql://u:hunter2@a/db?schema=public", 'option "schema"; leave it out'),
        ("postgresql://u:hunter2@a/db?pgbouncer=maybe", "pgbouncer=true"),
        ("postgresql://u:hunter2@a/db?prepare_threshold=-1", "whole number"),
        ("postgresql+asyncpg://u:hunter2@a/db", "driver"),
        ("nonsense", "SQLAlchemy URL"),
    ],
)
def test_urls_that_cannot_work(given: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy) as caught:
        checked_database_url(given)
    assert "hunter2" not in str(caught.value)


@given(
    st.text("ab,:/@?[]=&%12", max_size=25).map("postgresql://".__add__)
    | st.text(max_size=25).map("postgres://".__add__)
)
def test_any_text_is_a_url_or_gets_a_clear_error(text: str) -> None:
    try:
        made = checked_database_url(text)
    except ValueError as error:
        assert str(error)[-1:] not in ("", ":")
        assert "invalid literal" not in str(error)
    else:
        assert checked_database_url(made) == made


# SSO_REDIS_URL: what is taken, what is refused, and what Sentinel is asked with.


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("redis://cache", "redis://cache"),
        ("valkey://:pw@cache:6380/2", "redis://:pw@cache:6380/2"),
        ("valkeys://cache?ssl_ca_certs=/ca.pem", "rediss://cache?ssl_ca_certs=/ca.pem"),
        ("rediss://u:p@[::1]:6379/0", "rediss://u:p@[::1]:6379/0"),
        ("valkeys+sentinel://a,b/main", "rediss+sentinel://a,b/main"),
    ],
)
def test_what_is_taken(given: str, read: str) -> None:
    assert checked_redis_url(given) == read


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("x", "redis://host:port"),
        ("redis://", "redis://host:port"),
        ("redis://cache:port", "redis://host:port"),
        ("redis://[::1", "redis://host:port"),
        ("http://cache", "redis://host:port"),
        ("redis://a:1,b:2/main", "redis://host:port"),
        ("redis://cache?pasword=x", "the parameter pasword is not known"),
        ("redis://cache?db=last", "db is not a whole number"),
        ("redis+sentinel://a:26379", "redis+sentinel://host1:26379,host2:26379/service"),
        ("redis+sentinel://a,,b/main", "redis+sentinel://host1"),
        ("redis+sentinel://a,[::1/main", "redis+sentinel://host1"),
        ("REDIS+SENTINEL://a,[::1/main", "redis+sentinel://host1"),
        ("redis+sentinel://a:x/main", "redis+sentinel://host1"),
        ("redis+sentinel://a/main/1", "redis+sentinel://host1"),
        ("redis+sentinel://a/main?master=x", "the parameter master is not known"),
    ],
)
def test_what_is_refused(given: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        checked_redis_url(given)


def test_the_password_of_redis_is_not_sentinels() -> None:
    assert sentinels("redis://u:p@cache:1") is None
    given = checked_redis_url("redis+sentinel://u:p%40@a,[::1]:7/main?db=3&sentinel_password=s%2F")
    assert sentinels(given) == Sentinels(
        "redis+sentinel://[::1]:7,a:26379/main",
        {"username": "u", "password": "p@", "db": 3},
        {"username": None, "password": "s/"},
    )
    asked = storage.connect(given)  # nothing is sent yet
    assert isinstance(asked, RedisSentinelStorage)
    kwargs = [one.get_connection_kwargs() for one in asked.sentinel.sentinels]
    assert [(one["host"], one["port"]) for one in kwargs] == [("::1", 7), ("a", 26379)]
    given = checked_redis_url("rediss+sentinel://a/main?ssl_ca_certs=/ca.pem")
    tls = {"ssl": True, "ssl_ca_certs": "/ca.pem"}
    nobody = {"username": None, "password": None}
    assert sentinels(given) == Sentinels(
        "redis+sentinel://a:26379/main", {**nobody, "db": 0, **tls}, {**nobody, **tls}
    )
