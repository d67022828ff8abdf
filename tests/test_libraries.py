"""Only public API of libraries is used. What is not public stands here, with the reason.

Each exception names the version that it was checked against, and fails when its library changes:
read what changed, check what we make of it, and correct the table.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from pkgutil import resolve_name

import pytest
from gunicorn.workers.gthread import ThreadWorker
from sqlalchemy import literal, select
from sqlalchemy.sql.compiler import SQLCompiler

from sso.server.gunicorn_worker import Worker
from tests.support.each import each
from tests.test_architecture import MODULES, PACKAGE, nodes, room

# Of NamedTuple, SQLAlchemy's Row, os and Werkzeug's proxies: documented, though they begin with an
# underscore.
PUBLIC = {
    *("_asdict", "_fields", "_make", "_mapping", "_replace", "_exit"),
    "_get_current_object",
}
# They act when they are imported.
PROGRAMS = {"sso.__main__", "sso.presets.__main__", "sso.server.gunicorn_conf", "sso.wsgi"}

# Private names that a module uses, and public ones that it replaces without being invited to.
INTERNALS: dict[str, dict[str, str]] = {
    "sso.database.postgresql": {
        "engine.dialect.do_rollback": "no event can keep a transaction that only read from ROLLBACK"
    },
    "sso.endpoints.browser_session": {
        "g.csrf_token": "Flask-WTF keeps the token of the cookie that a sign-in replaces",
        "session._id": "Flask-Login stores a digest of the IP address, which nobody reads",
    },
    "sso.imports.sqlite_files": {
        "connection.text_factory": "the documented way to say how sqlite3 decodes texts"
    },
    "sso.metrics.exporter": {
        "values.ValueClass": "prometheus_client chooses it when it is imported, before the folder "
        "of its files is known"
    },
    "sso.process.http_call": {
        "connection.sock": "http.client offers no other way to give it a connection that is bound "
        "to a checked IP address and a deadline"
    },
    "sso.server.granian": {
        "_init_shared_socket": "all workers share one socket, which systemd may have opened",
        "_shd": "the socket that granian hands to its workers",
        "_sso": "the same for Python, which keeps it open",
    },
    "sso.server.gunicorn_worker": {
        "conn.sock": "the loop reads requests and sends answers, without a thread",
        "conn.data_ready": "gunicorn must not wait for what the loop has read",
    },
    "sso.web.routing": {
        "parser.stream_factory": "Werkzeug takes it when a parser is made, which its request does"
    },
}
# Attributes of libraries' objects that are documented as settable.
DOCUMENTED = {
    "MAX_IMAGE_PIXELS",  # Pillow
    *("autocommit", "prepare_threshold", "itersize"),  # psycopg
    *("buffer_text", "CharacterDataHandler", "EndElementHandler", "ProcessingInstructionHandler"),
    *("StartDoctypeDeclHandler", "StartElementHandler", "XmlDeclHandler"),  # xml.parsers.expat
    *("check_hostname", "verify_mode"),  # ssl
    *("cli", "finalize", "loader", "merge_slashes", "request_class", "session_interface"),  # Flask
    *("commands", "hidden", "length", "show_pos"),  # click
    *("args", "exc_text", "msg"),  # logging.LogRecord, in filters
    *("_srcfile", "logMultiprocessing", "logThreads"),  # logging, in its HOWTO
    *("_value_",),  # enum
    *("default_port", "isolation_level"),  # http.client, sqlite3
    *("header_registry", "max_header_length"),  # joserfc
    *("is_disconnect",),  # sqlalchemy.engine.ExceptionContext
    *("modified", "permanent", "session_protection", "wsgi_app"),  # Flask and Flask-Login
    *("raw",),  # requests.Response
    *("secret_keys",),  # itsdangerous
}

CHECKED = {
    "Flask-Login": "0.6.3",
    "Flask-WTF": "1.3.0",
    "granian": "2.8.7",
    "gunicorn": "27.0.1",
    "prometheus_client": "0.26.0",
    "SQLAlchemy": "2.1.9",
}
# The beginning of the digest of the source of what these names are part of.
SOURCES: dict[str, str] = {
    "flask_login.utils:login_user": "cb2e0c0c6567",
    "flask_wtf.csrf:generate_csrf": "016213b9f244",
    "granian.server.common:AbstractServer._init_shared_socket": "a3c733cffa4e",
    "granian.server.mp:MPServer._drop_shared_socket": "11c8701550a5",
    "granian.server.mp:MPServer._init_shared_socket": "f3155b13b257",
    "granian.server.mp:MPServer._spawn_worker": "87b0a0e68f39",
    "gunicorn.http.unreader:Unreader.take_buffered": "89cef5e60e6f",
    "gunicorn.workers.gthread:TConn": "e3a2878ba952",
    "gunicorn.workers.gthread:ThreadWorker": "2cde92a57d7b",
    "prometheus_client.values": "947b3a2d0d80",
    "sqlalchemy.engine.base:Connection._rollback_impl": "d5f347d564a6",
    "sqlalchemy.engine.default:DefaultDialect.do_rollback": "2d14e21989cc",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


@cache
def declared() -> set[str]:
    """The attributes that classes of ours have."""
    names = set()
    for path in MODULES.values():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                names |= set(of_body(node)) | set(of_self(node))
    return names


def of_body(node: ast.ClassDef) -> Iterator[str]:
    """The names that a class defines."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            yield item.name
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def of_self(node: ast.ClassDef) -> Iterator[str]:
    """The attributes that its methods assign."""
    for item in ast.walk(node):
        if not (isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)):
            continue
        if ast.unparse(item.value) == "self":
            yield item.attr


def internals(module: str) -> Iterator[str]:
    """What a module uses of libraries that is not public."""
    yield from inherited(module)
    own = stored(module)
    g = () if "g" in own else ("g", "flask.g")  # a variable of that name
    for node in nodes(MODULES[module]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node, own)
        elif isinstance(node, ast.Call):
            yield from (name for name in named(node) if name not in own)
        elif isinstance(node, ast.Attribute):
            holder = ast.unparse(node.value)
            if isinstance(node.ctx, ast.Load):
                is_foreign = is_private(node.attr) and node.attr not in own
            else:
                is_foreign = (
                    holder not in ("self", "cls") and node.attr not in declared() | DOCUMENTED
                )
                is_foreign &= not node.attr.startswith("sso_")
            if is_foreign or (holder in g and not is_of_g(node.attr)):
                yield f"{holder}.{node.attr}"


def stored(module: str) -> set[str]:
    """The names that a module defines or assigns."""
    names = set()
    for node in nodes(MODULES[module]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def imported(node: ast.Import | ast.ImportFrom, own: set[str]) -> Iterator[str]:
    from_ = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        parts = [*from_.split("."), *alias.name.split(".")]
        if parts[0] != "_typeshed" and any(is_private(one) and one not in own for one in parts):
            yield f"{from_}.{alias.name}".strip(".")


def named(call: ast.Call) -> Iterator[str]:
    """Names that are given as text."""
    function = ast.unparse(call.func)
    texts = [item.value for item in call.args if isinstance(item, ast.Constant)]
    for text in (text for text in texts if isinstance(text, str)):
        if function in ("getattr", "setattr", "delattr", "hasattr") and is_private(text):
            yield text
        holder, _, method = function.rpartition(".")
        holder = holder.removeprefix("flask.")
        is_key = method in ("get", "pop", "setdefault") and text == texts[0]
        is_foreign = is_private(text) if holder == "session" else not is_of_g(text)
        if is_key and is_foreign and holder in ("g", "session"):
            yield f"{holder}.{text}"


def is_of_g(name: str) -> bool:
    return name.startswith("sso_") or name in ("get", "pop", "setdefault")


def inherited(module: str) -> Iterator[str]:
    """The private names of libraries' classes that its classes define."""
    if module in PROGRAMS:
        return
    for node in nodes(MODULES[module]):
        if isinstance(node, ast.ClassDef):
            names = {name for name in {*of_body(node), *of_self(node)} if is_private(name)}
            kind = getattr(import_module(module), node.name, None)  # none within a function
            for base in kind.__mro__ if kind and names else ():
                if not base.__module__.startswith("sso."):
                    yield from names & {*vars(base), *re.findall(r"\bself\.(_\w+)", source(base))}


def source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # made by C, or when the program runs
        return ""


@each("module", [one for one in MODULES if room(one) != "demo"])
def test_only_public_names_of_libraries_are_used(module: str) -> None:
    """The demo is an application of its own, with a `g` of its own."""
    assert set(internals(module)) == INTERNALS.get(module, {}).keys()


def test_the_versions_are_those_that_were_checked() -> None:
    pinned = (PACKAGE.parent / "constraints.txt").read_text().splitlines()
    assert {f"{name}=={version}" for name, version in CHECKED.items()} <= set(pinned)


@each("target", SOURCES)
def test_internals_are_as_they_were(target: str) -> None:
    source = inspect.getsource(resolve_name(target))
    assert sha256(source.encode()).hexdigest()[:12] == SOURCES[target]


def test_a_compiled_statement_has_what_we_read() -> None:
    """`store.prepared` runs what SQLAlchemy's compiler made; see what it reads of it."""
    made = select(literal(1)).compile()
    assert isinstance(made, SQLCompiler)
    assert not [*made.insert_prefetch, *made.update_prefetch, *made.post_compile_params]
    assert (made.params, made.positional, made.positiontup) == ({"param_1": 1}, False, None)
    assert list(made.bind_names.values()) == ["param_1"]
    assert made.string == "SELECT :param_1 AS anon_1"


def test_the_worker_overrides_what_gunicorn_has() -> None:
    """gunicorn documents none of the methods of its workers."""
    ours = {name for name in vars(Worker) if not name.startswith("_")}
    assert ours - {"most_waiting", "trusted_proxies"} <= set(dir(ThreadWorker))
    for name in ours & set(dir(ThreadWorker)):
        theirs = inspect.signature(getattr(ThreadWorker, name))
        assert len(inspect.signature(getattr(Worker, name)).parameters) == len(theirs.parameters)


def test_the_measure_sees_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    path = PACKAGE / "process" / "made_up.py"
    text = """
from flask import g, session
from granian._granian import WSGIWorker
from granian.server.mp import MPServer as _own
import some_library
some_library.replaced = 1
some_library.thing._hidden()
setattr(some_library, "_also_hidden", 1)
g.authlib_server = g.get("csrf")
session.pop("_user_id")
"""
    monkeypatch.setitem(MODULES, "made_up", path)
    tree = list(ast.walk(ast.parse(text)))
    monkeypatch.setitem(globals(), "nodes", lambda _: tree)
    monkeypatch.setattr("tests.test_libraries.inherited", lambda _: [])
    assert set(internals("made_up")) == {
        "granian._granian.WSGIWorker", "some_library.replaced", "some_library.thing._hidden",
        "_also_hidden", "g.authlib_server", "g.csrf", "session._user_id",
    }  # fmt: skip
