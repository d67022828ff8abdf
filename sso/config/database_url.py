"""SSO_DATABASE_URL: the forms in which people have it, and what cannot work."""

import re
from urllib.parse import quote

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DRIVER = "postgresql+psycopg"
_SCHEME = re.compile(r"postgres(?:ql)?(?=://)")
# libpq's form of several hosts, which SQLAlchemy takes for one host and its port.
_HOSTS = re.compile(
    r"(?P<user>[^/?]*@)?(?P<hosts>[^/?@]*,[^/?@]*)(?P<path>/[^?]*)?(\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]+))?")
_TAKES_WRITES = ("read-write", "primary")
_UNCLEAR_HOSTS = "its hosts and ports cannot be read; give postgresql://host1:5432,host2:5432/name"


def checked(text: str) -> str:
    """The URL as SQLAlchemy takes it. Raises `ValueError` with the remedy."""
    text = _with_hosts_in_query(_SCHEME.sub(DRIVER, text, count=1))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ValueError("give an SQLAlchemy URL such as postgresql+psycopg://…") from None
    if url.drivername not in ("sqlite", DRIVER):
        raise ValueError("its driver is not supported; give postgresql+psycopg://… or sqlite:///…")
    if url.drivername == DRIVER:
        _check_parameters(url)
    return text


def has_several_hosts(url: URL) -> bool:
    hosts = url.query.get("host", url.host or "")
    return len(hosts.split(",") if isinstance(hosts, str) else hosts) > 1


def _with_hosts_in_query(text: str) -> str:
    prefix = f"{DRIVER}://"
    found = _HOSTS.fullmatch(text.removeprefix(prefix)) if text.startswith(prefix) else None
    if found is None:
        return text
    hosts = [_HOST.fullmatch(host) for host in found["hosts"].split(",")]
    if None in hosts:
        raise ValueError(_UNCLEAR_HOSTS)
    names = ",".join(quote(host["name"].strip("[]"), safe=":") for host in hosts if host)
    ports = ",".join(host["port"] or "5432" for host in hosts if host)
    query = f"host={names}&port={ports}" + (f"&{found['query']}" if found["query"] else "")
    return f"{prefix}{found['user'] or ''}{found['path'] or '/'}?{query}"


def _check_parameters(url: URL) -> None:
    """What the driver would refuse with every connection."""
    target = url.query.get("target_session_attrs", _TAKES_WRITES[0])
    if target not in _TAKES_WRITES and (target != "any" or has_several_hosts(url)):
        raise ValueError("the server needs to write; give target_session_attrs=read-write")
    if url.query.get("pgbouncer", "true") not in ("true", "false"):
        raise ValueError("give pgbouncer=true, or leave it out")
    if not re.fullmatch("[0-9]{1,6}", str(url.query.get("prepare_threshold", "5"))):
        raise ValueError("prepare_threshold is not a whole number")
    # SQLAlchemy would silently leave off what stands behind a second colon.
    hosts = url.query.get("host", ())
    if isinstance(hosts, tuple) and not all(_HOST.fullmatch(h) and "[" not in h for h in hosts):
        raise ValueError(_UNCLEAR_HOSTS)
    dialect = url.get_dialect()  # creating the engine loads it and the driver as well
    psycopg = dialect.import_dbapi()
    try:
        _, named = dialect().create_connect_args(url)
        for name in ("pgbouncer", "prepare_threshold"):  # ours
            named.pop(name, None)
        psycopg.conninfo.make_conninfo(**named)
    except (ArgumentError, ValueError, TypeError):
        raise ValueError(_UNCLEAR_HOSTS) from None
    except psycopg.ProgrammingError as error:
        raise ValueError(f"{str(error).strip()}; leave it out") from None
