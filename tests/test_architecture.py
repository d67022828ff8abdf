"""The rules of the house, proven from its source."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from flask import Flask

from tests.support.actors import BASE
from tests.support.each import each

PACKAGE = Path(__file__).resolve().parent.parent / "sso"
FILES = sorted(PACKAGE.rglob("*.py"))
# From bottom to top: a package imports only what stands before it.
ORDER = (
    *("clock", "errors", "i18n", "process", "ldap"),
    *("extensions", "flow", "crypto", "config", "saml", "presets", "mcp"),
    *("imports", "context"),
    *("models", "observability", "upstream", "database", "audit", "ratelimit", "store"),
    *("metrics", "mfa", "provisioning"),
    *("services", "explain", "web", "oauth", "scim", "checkup", "endpoints", "jobs", "cli"),
    *("doctor", "demo"),
    *("command_line", "wsgi", "server", "__main__"),
)
LEVELS = 10  # packages in the longest chain of imports
# Functions that import what they are given the name of.
DYNAMIC = {"import_module", "late_function", "late_functions", "late_module"}
# Imports within functions, and why.
LATE = {
    "sso": "every import of a part of the package runs this file first",
    "sso.observability.tracing": "OpenTelemetry is an extra",
    "sso.ratelimit.storage": "a server without Redis saves 8 MB",
}
LOOSE = 8
# Beside the packages that answer requests and run commands.
MAY_COMMIT = {
    *("sso.services.transaction", "sso.audit.chain", "sso.audit.chain"),
    "sso.checkup.sign_in",
    "sso.database.postgresql",  # what only read
}
COMMITTERS = {"endpoints", "cli", "jobs", "demo", "doctor"}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("sso", *parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The modules that a file imports."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Call) and called(node) in DYNAMIC:
            first = node.args[0] if node.args else None
            module = str(first.value).partition(":")[0] if isinstance(first, ast.Constant) else ""
            if module in MODULES:
                yield module


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@each("module", MODULES)
def test_imports_go_downwards(module: str) -> None:
    here = room(module)
    if not here:
        return  # sso/__init__.py builds the application
    below = {"", *ORDER[: ORDER.index(here) + 1]}
    for imported in imports(MODULES[module]):
        root = imported.split(".")[0]
        assert root != "sso" or room(imported) in below, imported
        if here == "flow":
            assert root not in {"flask", "sqlalchemy", "authlib", "joserfc"}
            assert root != "sso" or room(imported) in {"flow", "i18n"}


def test_few_files_are_in_no_package() -> None:
    assert len([path for path in FILES if path.parent == PACKAGE]) <= LOOSE


def test_nothing_imports_in_a_circle() -> None:
    graph = {
        module: {one for one in imports(path) if one in MODULES and one != module}
        for module, path in MODULES.items()
    }
    while graph:
        leaves = {module for module, needed in graph.items() if not needed & graph.keys()}
        assert leaves, sorted(graph)
        graph = {module: needed for module, needed in graph.items() if module not in leaves}


def test_chains_of_imports_are_short() -> None:
    below: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if here := room(module):
            found = {room(one) for one in imports(path) if one in MODULES}
            below.setdefault(here, set()).update(found - {"", here})

    @cache
    def level(package: str) -> int:
        return 1 + max((level(one) for one in below.get(package, ())), default=0)

    levels = {package: level(package) for package in below}
    assert max(levels.values()) <= LEVELS, levels


@each("module", MODULES)
def test_no_import_hides_in_a_function(module: str) -> None:
    indented = [
        node
        for node in nodes(MODULES[module])
        if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset
    ]
    if not indented:
        return
    functions = [one for one in nodes(MODULES[module]) if isinstance(one, ast.FunctionDef)]
    late = [
        node.lineno
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not late or module in LATE


@each("module", MODULES)
def test_only_who_owns_the_transaction_commits(module: str) -> None:
    calls = [node.attr for node in nodes(MODULES[module]) if isinstance(node, ast.Attribute)]
    assert "commit" not in calls or room(module) in COMMITTERS or module in MAY_COMMIT


@each("module", MODULES)
def test_every_write_begins_as_sqlite_needs_it(module: str) -> None:
    """The driver begins no transaction before a savepoint or WITH (see `sso.database`)."""
    text = MODULES[module].read_text()
    assert "begin_nested(" not in text
    on_postgresql = {"sso.store.approvals", "sso.store.redemption"}
    assert ".cte(" not in text or module in on_postgresql


@each("module", MODULES)
def test_only_the_clock_reads_the_time(module: str) -> None:
    if module == "sso.clock" or module.startswith("sso.demo"):
        return
    text = MODULES[module].read_text()
    assert "datetime.now" not in text
    assert "time.time" not in text
    assert "utcnow" not in text


@each("module", MODULES)
def test_one_function_for_each_table_says_that_something_is_disabled(module: str) -> None:
    """A directory enables only users whom it has disabled itself; see `users.set_disabled`."""
    writers = {
        function.name
        for function in nodes(MODULES[module])
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if (isinstance(node, ast.Attribute) and node.attr == "disabled_at"
            and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.keyword) and node.arg == "disabled_at")
    }  # fmt: skip
    tables = {f"sso.store.{name}" for name in ("apis", "users", "clients", "webhooks")}
    assert writers == ({"set_disabled"} if module in tables else set())


@each("path", FILES)
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            assert length(node) - sum(length(one) for one in inner) <= 60, node.name


def length(function: ast.FunctionDef) -> int:
    """The lines of what a function does."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@each("path", FILES)
def test_a_file_is_the_whole_of_its_noun(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert not re.search("continued|other half", text, re.I)


# Names of variables that say nothing: write the noun (user, grant, client, row, message).
EMPTY_NAMES = {"found", "one", "seen", "known", "given", "words", "shown", "wanted"}


@each("path", FILES)
def test_variables_are_named_after_what_they_hold(path: Path) -> None:
    for function in (node for node in nodes(path) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assert node.id not in EMPTY_NAMES, f"line {node.lineno}: {node.id}"


# The layers of a noun have one name. Any other name is given once.
NOUNS = {
    *(
        "agents",
        "api_tokens",
        "apis",
        "attributes",
        "branding",
        "clients",
        "devices",
        "dpop",
        "factors",
        "grants",
        "groups",
        "terms",
    ),
    "pictures",
    *(
        "identities",
        "keys",
        "ldap",
        "mail_queue",
        "mcp",
        "oidc",
        "outbox",
        "own_apis",
        "people",
        "preview",
        "provisioning",
        "refusals",
    ),
    *("resources", "saml", "settings", "sign_in", "tokens", "users", "webhooks"),
    "worker",
}
PAIRS = {
    "command": "the command of a package, and what it runs",
    "errors": "those for operators, and their pages",
    "forms": "of users and of administrators",
    "resources": "APIs as those of tokens, and those of SCIM",
}


def test_names_of_modules_are_given_once() -> None:
    stems = Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    assert {stem for stem, number in stems.items() if number > 1} == NOUNS | PAIRS.keys()


def test_imports_are_a_small_part() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in FILES)
    of_imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    assert of_imports < 0.08 * lines


def test_every_template_is_used() -> None:
    source = "".join(path.read_text() for path in FILES)
    templates = [one for one in (PACKAGE / "templates").rglob("*") if one.is_file()]
    source += "".join(path.read_text() for path in templates)
    for template in templates:
        assert f'"{template.relative_to(PACKAGE / "templates")}"' in source


def test_every_form_has_a_token() -> None:
    """Without its own, it is refused in a browser: those of other forms do not count."""
    forms, lacking = 0, []
    for path in (PACKAGE / "templates").rglob("*.html"):
        for form in re.findall(r"<form\b[^>]*\bpost\b.*?</form>", path.read_text(), re.DOTALL):
            forms += 1
            if "csrf_token" not in form:
                lacking.append(path.name)
    assert forms > 80
    assert lacking == ["form_post.html"]  # to an application


def test_no_file_is_there_by_accident() -> None:
    """SQLite makes an empty file of any name that it is asked to open, such as `postgres`."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone")
    tracked = [PACKAGE.parent / name for name in listed.stdout.splitlines()]
    empty = [path for path in tracked if path.is_file() and not path.stat().st_size]
    assert [one for one in empty if one.name not in ("__init__.py", ".gitkeep")] == []


def test_the_migrations_form_one_line() -> None:
    """Two that are made at the same time are numbered alike, and none of them can be applied."""
    before = None
    for path in sorted((PACKAGE.parent / "migrations" / "versions").glob("*.py")):
        found = dict(
            re.findall(r"^(revision|down_revision)(?:: .+)? = (.+)$", path.read_text(), re.M)
        )
        number = path.name.partition("_")[0]
        assert found["revision"] == f'"{number}"', path.name
        assert found["down_revision"] == (f'"{before}"' if before else "None"), path.name
        before = number


EVERY = {
    *("GET", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE"),
    *("LOCK", "UNLOCK", "REPORT", "SEARCH"),
}
ADDRESSES = {
    f"{BASE}/oauth2/authorize": {"GET", "POST"},
    f"{BASE}/oauth2/par": {"POST"},
    f"{BASE}/saml/metadata": {"GET"},
    f"{BASE}/saml/sso": {"GET", "POST"},
    f"{BASE}/saml/slo": {"GET"},
    f"{BASE}/oauth2/device_authorization": {"POST"},
    f"{BASE}/oauth2/token": {"POST"},
    f"{BASE}/oauth2/userinfo": {"GET", "POST"},
    f"{BASE}/oauth2/jwks": {"GET"},
    f"{BASE}/jwks": {"GET"},
    f"{BASE}/protected-resource/<api_id>": {"GET"},
    f"{BASE}/picture/<file>": {"GET"},
    f"{BASE}/account/picture": {"GET", "POST"},
    f"{BASE}/admin/person/picture": {"GET", "POST"},
    f"{BASE}/oauth2/revoke": {"POST"},
    f"{BASE}/oauth2/introspect": {"POST"},
    f"{BASE}/oauth2/end-session": {"GET", "POST"},
    f"{BASE}/.well-known/openid-configuration": {"GET"},
    f"/.well-known/oauth-authorization-server{BASE}": {"GET"},
    f"/.well-known/openid-configuration{BASE}": {"GET"},
    "/": {"GET"},
    f"{BASE}/": {"GET"},
    f"{BASE}/language": {"GET", "POST"},
    f"{BASE}/sign-in": {"GET", "POST"},
    f"{BASE}/sign-in/code": {"GET", "POST"},
    f"{BASE}/sign-in/passkey": {"GET", "POST"},
    f"{BASE}/sign-in/callback/<provider_id>": {"GET"},
    f"{BASE}/sign-in/connect": {"GET", "POST"},
    f"{BASE}/sign-in/directory/<provider_id>": {"GET", "POST"},
    f"{BASE}/second-factor": {"GET", "POST"},
    f"{BASE}/sign-out": {"GET", "POST"},
    f"{BASE}/consent": {"GET", "POST"},
    f"{BASE}/device": {"GET", "POST"},
    f"{BASE}/account": {"GET", "POST"},
    f"{BASE}/account/email": {"GET", "POST"},
    f"{BASE}/terms": {"GET", "POST"},
    f"{BASE}/forgotten-password": {"GET", "POST"},
    f"{BASE}/new-password": {"GET", "POST"},
    f"{BASE}/verify-email": {"GET", "POST"},
    f"{BASE}/sign-up": {"GET", "POST"},
    f"{BASE}/complete-sign-up": {"GET", "POST"},
    f"{BASE}/account/activity": {"GET"},
    f"{BASE}/account/identities": {"GET", "POST"},
    f"{BASE}/account/confirm": {"GET"},
    f"{BASE}/account/delete": {"GET", "POST"},
    f"{BASE}/account/factors/recovery-codes": {"POST"},
    f"{BASE}/account/factors": {"GET", "POST"},
    f"{BASE}/account/factors/totp": {"GET", "POST"},
    f"{BASE}/account/factors/code": {"GET", "POST"},
    f"{BASE}/account/factors/link": {"GET", "POST"},
    f"{BASE}/openapi.json": {"GET"},
    f"{BASE}/oauth2/register": {"GET", "POST"},
    f"{BASE}/oauth2/register/<client_id>": {"GET", "PUT", "DELETE"},
    f"{BASE}/oauth2/register/<client_id>/secret": {"POST"},
    f"{BASE}/apis": {"GET", "POST"},
    f"{BASE}/apis/<api_id>": {"GET", "PUT", "DELETE"},
    f"{BASE}/apis/<api_id>/secret": {"POST"},
    f"{BASE}/scim/v2/<path:path>": {"GET", "POST", "PUT", "PATCH", "DELETE"},
    f"{BASE}/client-logo": {"GET"},
    f"{BASE}/forward-auth/<client_id>": EVERY,
    f"{BASE}/forward-auth/<client_id>/<rest:path>": EVERY,
    f"{BASE}/backchannel-logout/<provider_id>": {"POST"},
    f"{BASE}/admin": {"GET"},
    f"{BASE}/admin/checks": {"GET", "POST"},
    f"{BASE}/admin/people": {"GET", "POST"},
    f"{BASE}/admin/people/export": {"GET"},
    f"{BASE}/admin/person": {"GET", "POST"},
    f"{BASE}/admin/applications": {"GET", "POST"},
    f"{BASE}/admin/applications/export": {"GET"},
    f"{BASE}/admin/application": {"GET"},
    f"{BASE}/admin/application/act": {"GET", "POST"},
    f"{BASE}/admin/application/secret": {"GET", "POST"},
    f"{BASE}/admin/application/logo": {"GET", "POST"},
    f"{BASE}/admin/application/new": {"GET"},
    f"{BASE}/admin/application/by-hand": {"GET", "POST"},
    f"{BASE}/admin/application/preset": {"GET", "POST"},
    f"{BASE}/admin/application/edit": {"GET", "POST"},
    f"{BASE}/admin/application/setup": {"GET"},
    f"{BASE}/admin/application/preview": {"GET"},
    f"{BASE}/admin/application/provisioning": {"GET"},
    f"{BASE}/admin/application/provisioning/deliveries": {"GET"},
    f"{BASE}/admin/application/provisioning/retry": {"GET", "POST"},
    f"{BASE}/admin/application/provisioning/test": {"GET", "POST"},
    f"{BASE}/admin/application/provisioning/token": {"GET", "POST"},
    f"{BASE}/admin/apis": {"GET"},
    f"{BASE}/admin/apis/export": {"GET"},
    f"{BASE}/admin/api": {"GET"},
    f"{BASE}/admin/api/new": {"GET", "POST"},
    f"{BASE}/admin/api/edit": {"GET", "POST"},
    f"{BASE}/admin/api/secret": {"GET", "POST"},
    f"{BASE}/admin/api/act": {"GET", "POST"},
    f"{BASE}/admin/mcp-servers": {"GET", "POST"},
    f"{BASE}/admin/mcp-servers/export": {"GET"},
    f"{BASE}/admin/mcp-servers/domains/export": {"GET"},
    f"{BASE}/admin/mcp-servers/domain": {"GET", "POST"},
    f"{BASE}/admin/mcp-server": {"GET", "POST"},
    f"{BASE}/admin/mcp-server/new": {"GET", "POST"},
    f"{BASE}/admin/refusals": {"GET"},
    f"{BASE}/admin/refusals/export": {"GET"},
    f"{BASE}/admin/person/act": {"GET", "POST"},
    f"{BASE}/admin/person/invite": {"GET", "POST"},
    f"{BASE}/admin/person/edit": {"GET", "POST"},
    f"{BASE}/admin/person/unlink": {"GET", "POST"},
    f"{BASE}/admin/person/attributes": {"GET", "POST"},
    f"{BASE}/admin/attributes": {"GET"},
    f"{BASE}/admin/attribute/new": {"GET", "POST"},
    f"{BASE}/admin/attribute": {"GET", "POST"},
    f"{BASE}/admin/attribute/delete": {"GET", "POST"},
    f"{BASE}/admin/groups": {"GET", "POST"},
    f"{BASE}/admin/groups/export": {"GET"},
    f"{BASE}/admin/group": {"GET", "POST"},
    f"{BASE}/admin/application/secret-end": {"GET", "POST"},
    f"{BASE}/admin/group/member": {"GET", "POST"},
    f"{BASE}/admin/group/rename": {"GET", "POST"},
    f"{BASE}/admin/group/remove": {"GET", "POST"},
    f"{BASE}/admin/group/delete": {"GET", "POST"},
    f"{BASE}/admin/group/owners": {"GET", "POST"},
    f"{BASE}/admin/group/owner/remove": {"GET", "POST"},
    f"{BASE}/admin/api-tokens": {"GET", "POST"},
    f"{BASE}/admin/api-tokens/export": {"GET"},
    f"{BASE}/admin/api-token/new": {"GET", "POST"},
    f"{BASE}/admin/api-token/revoke": {"GET", "POST"},
    f"{BASE}/admin/people/import": {"GET", "POST"},
    f"{BASE}/admin/person/new": {"GET", "POST"},
    f"{BASE}/admin/appearance": {"GET", "POST"},
    f"{BASE}/admin/appearance/preview": {"GET", "POST"},
    f"{BASE}/admin/settings": {"GET"},
    f"{BASE}/admin/providers": {"GET", "POST"},
    f"{BASE}/admin/provider": {"GET", "POST"},
    f"{BASE}/admin/webhooks": {"GET", "POST"},
    f"{BASE}/admin/webhooks/export": {"GET"},
    f"{BASE}/admin/webhook": {"GET", "POST"},
    f"{BASE}/admin/webhook/export": {"GET"},
    **{
        f"{BASE}/admin/webhook/{name}": {"GET", "POST"}
        for name in ("new", "edit", "test", "act", "retry")
    },
    f"{BASE}/admin/sessions": {"GET", "POST"},
    f"{BASE}/admin/sessions/export": {"GET"},
    f"{BASE}/admin/emails": {"GET", "POST"},
    f"{BASE}/admin/emails/export": {"GET"},
    f"{BASE}/admin/emails/failed": {"GET", "POST"},
    f"{BASE}/admin/email/act": {"GET", "POST"},
    f"{BASE}/admin/audit": {"GET"},
    f"{BASE}/admin/audit/event": {"GET"},
    f"{BASE}/admin/audit/chain": {"GET"},
    f"{BASE}/admin/audit/export": {"GET"},
    f"{BASE}/admin/keys": {"GET"},
    f"{BASE}/admin/keys/rotate": {"GET", "POST"},
    f"{BASE}/admin/keys/retire": {"GET", "POST"},
    "/healthz": {"GET"},
    "/readyz": {"GET"},
}


def test_no_address_changes_by_accident(app: Flask) -> None:
    found = {
        rule.rule: (rule.methods or set()) - {"HEAD", "OPTIONS"}
        for rule in app.url_map.iter_rules()
        if rule.endpoint != "static"
    }
    assert found == ADDRESSES


@each("module", [one for one in MODULES if room(one) in ("endpoints", "web")])
def test_a_view_reads_what_is_submitted_from_a_wtform(module: str) -> None:
    if module != "sso.web.forms":
        assert "request.form" not in MODULES[module].read_text()
