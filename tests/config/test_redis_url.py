"""SSO_REDIS_URL: what is taken, what is refused, and what Sentinel is asked with."""

import re

import pytest
from limits.storage import RedisSentinelStorage

from sso.config.connections import Sentinels, checked_redis_url, sentinels
from sso.ratelimit import storage


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
