"""What services refuse can be read on pages, in six languages: each sentence is a `Message`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import sso

PACKAGE = Path(sso.__file__).parent
# Only commands, the registration API and the log say what these refuse.
PROGRAMS = {"importing", "webhooks"}
FILES = (
    *(path for path in sorted(PACKAGE.glob("services/*.py")) if path.stem not in PROGRAMS),
    *(PACKAGE / "config" / name for name in ("images.py", "urls.py")),
    *(PACKAGE / "presets" / name for name in ("application_url.py", "installation.py")),
)
TRANSLATED = {"Message", "N_"}
ELSEWHERE = {
    "agent_identity.described",  # for commands
    # Commands print these beside what they did, or about options that pages have not.
    *(
        "changes.without_effect",
        "clients._alter",
        "clients.change",
        "groups.not_known",
        "groups.without_members",
    ),
    *("groups._similar", "checks", "checks.profile_notes", "roles.keep_others"),
    *("preset_clients._method_error", "credentials.make_enrolment_link"),
    *("installation._filled", "installation.install", "installation.missing"),
    "installation.setup",
    # Of the report of `migrate`, and printed beside a change of a client.
    *("migrating", "migrating._both", "migrating._compare", "migrating._planned"),
    *("migrating.group_findings", "migrating.meanings_here", "migrating.take_people", "clients"),
    # About files that commands read.
    *("declared_accounts._alteration", "declared_accounts.find", "checks.jwks", "checks.logo"),
    "service_providers._read",
    # For the log.
    *("authentication.verify_password", "preview._approve"),
    # No sentences.
    *("identities", "images", "urls"),
    # About the settings, and what programs register.
    *("images.from_data_url", "images.read"),
    "clients.parsed_registration",
    *("client_documents", "checks.implied"),  # the names of scopes
    *("api_values.without_effect", "apis._notes"),
    "api_values.parsed",
}


def test_what_is_refused_is_translated() -> None:
    found = {place: text for path in FILES for place, text in sentences(path)}
    assert {place: found[place] for place in found.keys() - ELSEWHERE} == {}
    assert ELSEWHERE - found.keys() == set()


def sentences(path: Path) -> Iterator[tuple[str, str]]:
    """Texts of four words and more that are not translated, and the functions that have them."""
    yield from _within(ast.parse(path.read_text(encoding="utf-8")), path.stem)


def _within(node: ast.AST, place: str) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in TRANSLATED:
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"))):
            return
        case ast.Expr(value=ast.Constant()):
            return  # a docstring
        case ast.FunctionDef(name=name):
            place = f"{place.split('.')[0]}.{name}"
        case ast.Constant(value=str(text)):
            if len(text.split()) >= 4:
                yield place, text
        case ast.JoinedStr(values=parts):
            text = "".join(
                str(one.value) if isinstance(one, ast.Constant) else "X" for one in parts
            )
            if len(text.split()) >= 4:
                yield place, text
            return
    for inner in ast.iter_child_nodes(node):
        yield from _within(inner, place)
