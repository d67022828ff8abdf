"""The shape of a configuration: all of it but the texts that it holds as values."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any
from xml.etree import ElementTree

from ruamel.yaml import YAML

_STRINGS = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")


@cache
def shape(language: str, text: str) -> Any:
    """What a value must not change. Raises where the text is not well-formed."""
    return _SHAPES[language](text)


def _of_value(value: Any) -> Any:
    if isinstance(value, dict):  # a key may be a value, too
        return [(type(key), _of_value(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [_of_value(one) for one in value]
    return type(value)


def _yaml(text: str) -> Any:
    return [_of_value(one) for one in YAML().load_all(text)]


def _ini(text: str) -> Any:
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] not in "#;"]
    found = []
    for line in lines:
        name, separator, value = line.partition("=")
        assert separator or re.fullmatch(r"\[[^\]]+\]", line), line
        value = value.strip()
        if value.startswith('"'):
            assert re.fullmatch(r'"[^"\\]*"', value), line
        else:
            assert not re.search(r"\s[;#]", value), line
        found.append(name.strip())
    return found


def _env(text: str) -> Any:
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            (word,) = shlex.split(line)  # one word: what follows a space would be a command
            assert "$" not in line or "'" in line, line
            name, _, _ = word.partition("=")
            assert re.fullmatch(r"[A-Za-z_]\w*", name.removeprefix("export ")), line
            found.append(name)
    return found


def _bash(text: str) -> Any:
    subprocess.run(["bash", "-n", "-c", text], check=True, capture_output=True)
    # Words without what stands between quotes: a value changes none but its own.
    return len(shlex.split(text, comments=True))


def _python(text: str) -> Any:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def _hcl(text: str) -> Any:
    without_escapes = text.replace("$${", "").replace("%%{", "")
    return _STRINGS.sub("", text), re.findall(r"[$%]\{[^}]*\}", without_escapes)


def _ruby(text: str) -> Any:
    return _STRINGS.sub("", text), re.findall(r"\"[^\"]*#\{[^\"]*\"", text)


def _quoted(text: str) -> Any:
    """Formats without a parser here: the signs around words and quoted values."""
    return re.sub(r"[\w./:@+-]+", "", _STRINGS.sub("", text))


def _apache(text: str) -> Any:
    """`Require` is an expression first, which takes a layer of backslashes away."""
    lines = (
        re.sub(r"\\(.)", r"\1", line) if line.lstrip().startswith("Require ") else line
        for line in text.splitlines()
    )
    return _quoted("\n".join(lines))


def _xml(text: str) -> Any:
    return [one.tag for one in ElementTree.fromstring(f"<all>{text}</all>").iter()]


_SHAPES: dict[str, Callable[[str], Any]] = {
    "apache": _apache,
    "bash": _bash,
    "env": _env,
    "hcl": _hcl,
    "ini": _ini,
    "java": _quoted,
    "javascript": _quoted,
    "json": lambda text: _of_value(json.loads(text)),
    "nginx": _quoted,
    "php": _quoted,
    "python": _python,
    "ruby": _ruby,
    "text": lambda text: len(text.splitlines()),
    "toml": lambda text: _of_value(tomllib.loads(text)),
    "typescript": _quoted,
    "xml": _xml,
    "yaml": _yaml,
}
