"""SSO_DATABASE_URL as providers give it, and URLs that could not work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from sso.config.connections import checked_database_url, has_several_hosts
from sso.database import postgresql

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
