"""Findings and explanations: pages can show each of them in the reader's language."""

import ast
import json
import re
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module
from pathlib import Path

import sso
from sso.checkup.mcp_client import Session
from sso.checkup.mcp_server import Server
from sso.endpoints.admin import overview
from sso.explain import case
from sso.explain.case import Case
from sso.flow import refusals
from sso.flow.refusals import Cause, Reason
from sso.i18n.message import Message
from sso.models import Refusal
from tests.support.each import each

ROOT = Path(sso.__file__).parent
ONLY_ON_THE_COMMAND_LINE = {"checkup/reach.py", "explain/saml_messages.py"}
NO_SENTENCES = {
    *("code flow", "secret key", "slow bodies", "issuer aliases"),  # names of findings
    *("call without token", "call with token", "foreign tokens", "resource metadata"),
    *("authorization server", "server metadata", "application/json, text/event-stream"),
    "client update",  # the name of a command
    "/oauth2/token HTTP/1.1\r\nHost: ",
    *("openid profile email", "timedatectl set-ntp true", "# made for "),
}
COMPARISONS = {"startswith", "removeprefix"}
FINDINGS = {"ok", "warning", "wrong", "skipped", "clock_finding"}
TEXTS = {**dict.fromkeys(FINDINGS, 2), "Explanation": 1}  # where texts begin: function, name, texts
LITERAL = (ast.Constant, ast.JoinedStr)
SENTENCE = re.compile(r"[A-Za-z][a-z]+,? [A-Za-z]")


def files(package: str) -> Iterator[Path]:
    for path in sorted((ROOT / package).glob("*.py")):
        if path.relative_to(ROOT).as_posix() not in ONLY_ON_THE_COMMAND_LINE:
            yield path


def called(node: ast.AST) -> str:
    """The name of the function or method that is called here."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "id", getattr(function, "attr", "")))


def sentences(node: ast.AST) -> Iterator[str]:
    """Text with spaces that is no docstring, message, command or name of a finding."""
    if isinstance(node, ast.JoinedStr) and ast.unparse(node)[2:].startswith("{COMMAND}"):
        return
    if isinstance(node, ast.Compare) or called(node) in COMPARISONS:
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if SENTENCE.search(node.value):
            yield node.value
        return
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Dict):
        children = list(node.values)
    elif called(node) in {"Message", "N_"}:
        children = [one.value for one in getattr(node, "keywords", [])]
    elif called(node) in TEXTS:
        children = children[TEXTS[called(node)] :]
        yield from (ast.unparse(one) for one in children if isinstance(one, LITERAL))
    for child in children:
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from sentences(child)


def test_no_sentence_is_english_alone() -> None:
    for package in ("checkup", "explain"):
        for path in files(package):
            found = list(sentences(ast.parse(path.read_text())))
            assert set(found) <= NO_SENTENCES, path


def test_each_finding_has_a_label() -> None:
    names = {*overview._NOW, *overview._EACH_MINUTE, *overview._EACH_HOUR, *overview._ELSEWHERE}
    for path in files("checkup"):
        module = import_module(f"sso.checkup.{path.stem}")
        for node in ast.walk(ast.parse(path.read_text())):
            if called(node) in FINDINGS and isinstance(node, ast.Call):
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    names.add(str(first.value))
                elif isinstance(first, ast.Name) and first.id.isupper():
                    names.add(getattr(module, first.id))
    steps = [*Server("").steps(), *Session.__new__(Session).steps()]  # of an MCP server's check
    assert {*names, *(name for name, _ in steps)} == overview.LABELS.keys()


@each("codes", (Cause, Reason))
def test_each_code_has_a_sentence_and_is_used(codes: type[StrEnum]) -> None:
    """A sentence that nothing says any more would be translated for nobody."""
    sentences = refusals.SENTENCES if codes is Cause else refusals.REASONS
    assert set(sentences) == set(codes)
    used = {
        node.attr
        for path in ROOT.rglob("*.py")
        if path.parent.name != "explain" and path.name != "refusals.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    used |= set(re.findall(r"Reason\.(\w+)", (ROOT / "store" / "refusals.py").read_text()))
    assert {code.name for code in codes} <= used


def test_a_description_is_translated_or_shown_as_it_is() -> None:
    denied = {"code": "denied", "description": "what it was told then"}
    for details, text, is_known in (
        (denied, "The user refused.", True),
        ({"description": "<b>%s", "code": "of a later version"}, "<b>%s", False),
        ({}, "", False),
    ):
        found = case.described(Case(Refusal(details=json.dumps(details))))
        assert (found, isinstance(found, Message)) == (text, is_known)
