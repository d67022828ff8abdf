"""SSO_DATABASE_URL and SSO_REDIS_URL: the accepted forms, and what cannot work.

Redis or Valkey is one server, or the servers that Sentinel watches:

    redis://user:password@host:6379/0      rediss:// with TLS
    redis+sentinel://user:password@host1:26379,host2:26379/service
    rediss+sentinel:// with TLS

The user and the password are those of Redis; for Sentinel itself there are `?sentinel_username=`
and `?sentinel_password=`. Valkey has the same URLs, and `valkey://`, `valkeys://` and so on.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

POSTGRESQL_DRIVER = "postgresql+psycopg"
_SCHEME = re.compile(r"postgres(?:ql)?(?=://)")
# libpq's form of several hosts, which SQLAlchemy takes for one host and its port.
_HOSTS = re.compile(
    r"(?P<user>[^/?]*@)?(?P<hosts>[^/?@]*,[^/?@]*)(?P<path>/[^?]*)?(\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]+))?")
_TAKES_WRITES = ("read-write", "primary")
_UNCLEAR_HOSTS = "its hosts and ports cannot be read; give postgresql://host1:5432,host2:5432/name"


def checked_database_url(text: str) -> str:
    """Return the URL as SQLAlchemy takes it. Raises `ValueError` with the remedy."""
    text = _with_hosts_in_query(_SCHEME.sub(POSTGRESQL_DRIVER, text, count=1))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ValueError("give an SQLAlchemy URL such as postgresql+psycopg://…") from None
    if url.drivername not in ("sqlite", POSTGRESQL_DRIVER):
        raise ValueError("its driver is not supported; give postgresql+psycopg://… or sqlite:///…")
    if url.drivername == POSTGRESQL_DRIVER:
        _check_parameters(url)
    return text


def has_several_hosts(url: URL) -> bool:
    hosts = url.query.get("host", url.host or "")
    return len(hosts.split(",") if isinstance(hosts, str) else hosts) > 1


def _with_hosts_in_query(text: str) -> str:
    prefix = f"{POSTGRESQL_DRIVER}://"
    match = _HOSTS.fullmatch(text.removeprefix(prefix)) if text.startswith(prefix) else None
    if match is None:
        return text
    hosts = [_HOST.fullmatch(host) for host in match["hosts"].split(",")]
    if None in hosts:
        raise ValueError(_UNCLEAR_HOSTS)
    names = ",".join(quote(host["name"].strip("[]"), safe=":") for host in hosts if host)
    ports = ",".join(host["port"] or "5432" for host in hosts if host)
    query = f"host={names}&port={ports}" + (f"&{match['query']}" if match["query"] else "")
    return f"{prefix}{match['user'] or ''}{match['path'] or '/'}?{query}"


def _check_parameters(url: URL) -> None:
    """Raise `ValueError` for parameters that the driver would refuse with every connection."""
    target = url.query.get("target_session_attrs", _TAKES_WRITES[0])
    if target not in _TAKES_WRITES and (target != "any" or has_several_hosts(url)):
        raise ValueError("the server needs to write; give target_session_attrs=read-write")
    if url.query.get("pgbouncer", "true") not in ("true", "false"):
        raise ValueError("give pgbouncer=true, or leave it out")
    if not re.fullmatch("[0-9]{1,6}", str(url.query.get("prepare_threshold", "5"))):
        raise ValueError("prepare_threshold is not a whole number")
    # SQLAlchemy would silently drop everything after a second colon.
    hosts = url.query.get("host", ())
    if isinstance(hosts, tuple) and not all(_HOST.fullmatch(h) and "[" not in h for h in hosts):
        raise ValueError(_UNCLEAR_HOSTS)
    dialect = url.get_dialect()  # creating the engine loads both
    psycopg = dialect.import_dbapi()
    try:
        _, arguments = dialect().create_connect_args(url)
        for name in ("pgbouncer", "prepare_threshold"):  # ours
            arguments.pop(name, None)
        psycopg.conninfo.make_conninfo(**arguments)
    except (ArgumentError, ValueError, TypeError):
        raise ValueError(_UNCLEAR_HOSTS) from None
    except psycopg.ProgrammingError as error:
        raise ValueError(f"{str(error).strip()}; leave it out") from None


_SENTINEL_PORT = 26379
_VALKEY = re.compile(r"valkey(s?)(?=(\+sentinel)?://)")
_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
_TLS = {
    *("ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile"),
    *("ssl_keyfile", "ssl_password"),
}
# Of redis-py, which would fail with any other one when it connects.
_KNOWN = _TLS | {
    *("db", "client_name", "protocol", "timeout", "max_connections", "health_check_interval"),
    *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "retry_on_timeout"),
}
_OF_SENTINEL = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True)
class Sentinels:
    """The servers of Sentinel, which know the current primary, and the options of connections."""

    uri: str  # as `limits` reads it
    options: dict[str, Any]
    sentinel_options: dict[str, Any]


def checked_redis_url(text: str) -> str:
    """Return the URL as redis-py or Sentinel takes it. Raises `ValueError` with the remedy."""
    url = _VALKEY.sub(r"redis\1", text, count=1)
    try:
        parts = _split(url)
    except ValueError:  # whose text may show a part of the password
        parts = SplitResult("", "", "", "", "")
    if parts.scheme not in _SCHEMES:
        raise ValueError("give an address such as redis://host:port")
    if parts.scheme.endswith("+sentinel"):
        sentinels(url)
        return url
    try:
        is_complete = parts.hostname and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        raise ValueError("give an address such as redis://host:port")
    _query(parts, _KNOWN)
    return url


def sentinels(url: str) -> Sentinels | None:
    """Parse a URL of Sentinel; return `None` for the URL of a server. Raises `ValueError`."""
    parts = _split(url)
    if not parts.scheme.endswith("+sentinel"):
        return None
    user, _, hosts = parts.netloc.rpartition("@")
    service = parts.path.strip("/")
    try:
        urls = [urlsplit(f"//{host}") for host in hosts.split(",")]
        servers = [(url.hostname, url.port or _SENTINEL_PORT) for url in urls]
    except ValueError:
        servers = []
    if not servers or not all(host for host, _ in servers) or not service or "/" in service:
        raise ValueError("give redis+sentinel://host1:26379,host2:26379/service")
    query = _query(parts, {"db", *_TLS, *_OF_SENTINEL})
    name, _, password = (unquote(part) for part in user.partition(":"))
    tls: dict[str, Any] = {key: value for key, value in query.items() if key in _TLS}
    if parts.scheme.startswith("rediss"):
        tls["ssl"] = True
    # `limits` uses urlsplit, too, which takes an IPv6 address only in the first place.
    servers.sort(key=lambda server: ":" not in str(server[0]))
    locations = ",".join(f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
                         for host, port in servers)  # fmt: skip
    return Sentinels(
        f"redis+sentinel://{locations}/{service}",
        {
            "username": name or None,
            "password": password or None,
            "db": int(query.get("db", 0)),
            **tls,
        },
        # Named even if there is none: `limits` would send that of Redis.
        {key.removeprefix("sentinel_"): query.get(key) for key in _OF_SENTINEL} | tls,
    )


def _split(url: str) -> SplitResult:
    """Split a URL; unlike `urlsplit`, accept an IPv6 address after another host."""
    scheme, _, rest = url.partition("://")
    if not scheme.lower().endswith("+sentinel"):
        return urlsplit(url)
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    return urlsplit(f"{scheme}://hosts{rest.removeprefix(netloc)}")._replace(netloc=netloc)


def _query(parts: SplitResult, names: set[str]) -> dict[str, Any]:
    query: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(query.keys() - names):
        raise ValueError(f"the parameter {unknown[0]} is not known; leave it out")
    if not re.fullmatch("[0-9]{1,4}", query.get("db", "0")):
        raise ValueError("db is not a whole number")
    return query
