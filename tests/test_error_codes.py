"""Programs recognize an error by its class or its code; sentences are for people alone."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.each import each
from tests.test_architecture import FILES, MODULES, PACKAGE, called

# What begins like this is compared with a sentence all the same.
ALLOWED = (
    # Texts of SQLite, of drivers and of poolers, which have no code.
    *("'no such table' in text", "'no such column' in text", "'has no column named' in text"),
    *("'locked' not in str(error)", "'connection is closed' in str(error)"),
    *("'file is not a database' in str(error.orig)", "_REFUSES_OPTIONS.search(str(error))"),
    *("text in str(error)", "{'statement pooling mode':"),
    # Names of findings, of kinds and of causes, which are keys and no errors.
    *("{'clock and HTTP Date':", "{'database': components", "{'redis': components"),
    "{'keys': 'keys', 'mail':",
    *("{'client assertions':", "{'sign-out by an operator':", "{'link-local':"),
    *("{Message('a mail'):", "{N_('Emails'):"),
    *("IDENTITIES not in person.lost", "factor == notifications.APP_NAME", "word in 'true yes t'"),
    *("name not in (APPS, KEYS, CODES, IDENTITIES)", "'recovery codes' not in earlier_labels"),
    "{'group': 'Groups', 'role': 'Roles'",  # the kinds of things in a report of a migration
    "{'clients': 5000, 'groups': 20000",  # the parts of a realm, with the most of each
    "refusal == _TURNED_AWAY",  # a value within a signed request
    "line.partition(': ')",  # the name of a setting, before what is wrong with it
    "text.removeprefix('it answered ')",  # why a webhook was disabled, as the database has it
)
UNCODED = "explain/uncoded.py"  # for rows that were stored before there were codes
OF_OTHERS = "explain/saml_messages.py"  # of applications, whose messages have no codes
SENTENCE = re.compile(r"[A-Za-z'][\w'()]*[,:;]? (?:[\w'()-]+[,:;]? )*[a-z]{2,}")
READS = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "replace", "partition"),
    *("find", "index", "count", "match", "fullmatch", "search", "get"),
}


def is_sentence(text: object) -> bool:
    return isinstance(text, str) and bool(SENTENCE.search(text))


@cache
def constants(module: str) -> set[str]:
    """The constants of a module that are sentences."""
    return {
        node.targets[0].id
        for node in ast.parse(MODULES[module].read_text()).body
        if isinstance(node, ast.Assign)
        if isinstance(node.targets[0], ast.Name) and says_something(node.value)
    }


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """How a file names what it imports, and what that is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def says_something(node: ast.AST) -> bool:
    """Whether an expression is a sentence, as it stands there."""
    if isinstance(node, ast.Constant):
        return is_sentence(node.value)
    if isinstance(node, ast.Call) and called(node) in ("Message", "N_") and node.args:
        return says_something(node.args[0])
    if isinstance(node, ast.JoinedStr):
        return any(says_something(part) for part in node.values)
    return False


class Comparisons(ast.NodeVisitor):
    """Finds what is compared with the text of an error, or with a sentence."""

    def __init__(self, tree: ast.AST, own: set[str]) -> None:
        self.found: list[str] = []
        self.own, self.imported = own, dict(imported(tree))
        self.errors = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
        self.lines: set[str] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.comprehension | ast.For):
                continue
            if is_list_of_errors(node.iter) and isinstance(node.target, ast.Name):
                self.lines.add(node.target.id)

    def is_text(self, node: ast.AST) -> bool:
        """Whether an expression is the text of an error."""
        if isinstance(node, ast.Call):
            name, first = called(node), node.args[0] if node.args else None
            if name in ("get_error_description", "casefold", "lower", "strip"):
                return name == "get_error_description" or self.is_text(node.func.value)  # type: ignore[attr-defined]
            return name == "str" and isinstance(first, ast.Name) and first.id in self.errors
        if isinstance(node, ast.Attribute):
            return node.attr == "description"
        if isinstance(node, ast.Subscript):
            text = ast.unparse(node)
            return text.endswith((".args[0]", "['description']")) or is_list_of_errors(node.value)
        return isinstance(node, ast.Name) and node.id in self.lines

    def is_sentence(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(map(self.is_sentence, node.elts))
        if isinstance(node, ast.Name):
            module, _, name = self.imported.get(node.id, "").rpartition(".")
            return node.id in self.own or (module in MODULES and name in constants(module))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self.imported.get(node.value.id, "")
            return module in MODULES and node.attr in constants(module)
        return says_something(node)

    def add(self, node: ast.AST) -> None:
        self.found.append(ast.unparse(node))

    def visit_Compare(self, node: ast.Compare) -> None:
        compares = isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        sides = [node.left, *node.comparators]
        if compares and any(self.is_text(one) or self.is_sentence(one) for one in sides):
            self.add(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in READS:
            parts = [node.func.value, *node.args]
            if any(map(self.is_text, parts)) or any(map(self.is_sentence, node.args[:1])):
                self.add(node)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        if any(key is not None and self.is_sentence(key) for key in node.keys):
            self.add(node)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        if self.is_text(node.subject):
            self.add(node.subject)
        self.generic_visit(node)


def is_list_of_errors(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "errors"


def comparisons(source: str) -> list[str]:
    tree = ast.parse(source)
    own = {
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        if isinstance(node.targets[0], ast.Name) and says_something(node.value)
    }
    visitor = Comparisons(tree, own)
    visitor.visit(tree)
    return visitor.found


@each("path", [path for path in FILES if path not in (PACKAGE / UNCODED, PACKAGE / OF_OTHERS)])
def test_nothing_is_told_from_a_sentence(path: Path) -> None:
    found = comparisons(path.read_text())
    assert [one for one in found if not one.startswith(ALLOWED)] == []


CAUGHT = "try: save()\nexcept Invalid as error:\n    "
PLANTED = {
    "part of a text": CAUGHT + "if 'there is already a' in str(error): raise",
    "a text in small letters": CAUGHT + "if 'taken' in str(error).lower(): raise",
    "the whole": "if refusal == 'The user refused.': go()",
    "the description": "if error.description == text: go()",
    "Authlib's description": "if error.get_error_description() in known: go()",
    "a stored description": "if case['description'] in told: go()",
    "the beginning": "if reason.startswith('its grant has ended: '): go()",
    "a replacement": CAUGHT + "raise Refused(str(error).replace('client', 'provider'))",
    "an expression": CAUGHT + "re.search('taken', str(error))",
    "each line": "all('redirect address' in one for one in error.errors)",
    "one line": "error.errors[0] == text",
    "an argument": "error.args[0].startswith(text)",
    "a constant": "GONE = 'The link was used.'\nif text == GONE: go()",
    "an imported constant": (
        "from sso.services.notifications import APP_NAME\nif text == APP_NAME: go()"
    ),
    "a constant of a module": (
        "from sso.services import notifications\nif text in (notifications.APP_NAME,): go()"
    ),
    "a table": "_CAUSES = {'The user refused.': Cause.DENIED}",
    "a table of messages": "_HINTS = {Message('it is no URL'): 1}",
    "a look-up": "found = _FAULTS.get(error.get_error_description())",
}


@each("source", PLANTED)
def test_a_planted_comparison_is_found(source: str) -> None:
    assert comparisons(PLANTED[source])


def test_codes_and_classes_may_be_compared() -> None:
    assert not comparisons(
        "if error.code == 'invalid_grant' or Rule.ALREADY_EXISTS in error.rules: go()\n"
        "_PUSHED = {Reason.USED_BEFORE: Message('The request was used before.')}\n"
        "raise Invalid([Message('there is no name')])"
    )
