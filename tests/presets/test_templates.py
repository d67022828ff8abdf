"""Quoting: a value reads back as it was, or the format refuses it."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from io import StringIO
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sso.i18n.message import Message
from sso.presets import templates
from sso.presets.installation import text_problem
from sso.presets.templates import FILTERS, Unquotable


def from_php(text: str) -> str:
    """A text between apostrophes (PHP manual, Strings; Ruby's rules are the same)."""
    found = re.fullmatch(r"'((?:[^'\\]|\\.)*)'", text)
    assert found
    return re.sub(r"\\(['\\])", r"\1", found[1])


def from_hcl(text: str) -> str:
    """Template markers are doubled; the rest is JSON, which HCL's escapes contain."""
    assert not re.search(r"(?<![$%])[$%]\{", text.replace("$${", "").replace("%%{", ""))
    return str(json.loads(text.replace("$${", "${").replace("%%{", "%{")))


def from_apache(text: str) -> str:
    """Only a backslash and a quote are escaped; variables are expanded even in quotes."""
    assert not re.search(r"[$%]\{", text)
    return re.sub(r'\\(["\\])', r"\1", text[1:-1])


def from_ini(text: str) -> str:
    """As go-ini and most others read it: a pair of quotes goes, and no comment begins inside."""
    assert "%(" not in text
    assert "${" not in text
    if text.startswith('"'):
        assert re.fullmatch(r'"[^"\\]*"', text)
        return text[1:-1]
    assert not re.search(r"[;#\"`]", text)
    assert text == text.strip()
    return text


def from_env(text: str) -> str:
    """By a shell; others take a text between apostrophes, or without any quotes, likewise."""
    (word,) = shlex.split(text)
    assert text.startswith("'") or not set("$`\\") & set(text)
    return word


def from_xml(text: str) -> str:
    found = ElementTree.fromstring(f'<a b="{text}">{text}</a>')
    assert found.text == found.attrib["b"]
    return found.text or ""


def from_shell(text: str) -> str:
    done = subprocess.run(["bash", "-c", f"printf %s {text}"], capture_output=True, check=True)
    return done.stdout.decode()


READERS: dict[str, Callable[[str], str]] = {
    "shell": from_shell,
    "php": from_php,
    "python": ast.literal_eval,
    "hcl": from_hcl,
    "apache": from_apache,
    "ini": from_ini,
    "env": from_env,
    "xml": from_xml,
}
TEXTS = st.text(
    st.one_of(st.sampled_from("'\"\\$`{}()#;%=:!&*[]<>| -~@,?\u00fc漢😀"), st.characters())
).filter(lambda text: text_problem(Message("it"), text) is None)


def test_every_filter_is_tested() -> None:
    assert READERS.keys() | {"json"} == FILTERS.keys()


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None)
@example("it's")
@example('a "b" $c')
@example("a; b # c")
@example("\\")
@example("${x}%{y}%(z)s")
@example(" a ")
@given(text=TEXTS)
def test_a_value_reads_back(name: str, text: str) -> None:
    try:
        written = FILTERS[name](text)
    except Unquotable as error:
        assert name in ("ini", "env", "apache")
        assert repr(text) in str(error)
        return
    assert "\n" not in written
    assert READERS[name](written) == text


@settings(max_examples=100, deadline=None)
@example("null")
@example("a: b # c")
@given(text=TEXTS)
def test_json_is_also_yaml_and_toml(text: str) -> None:
    written = templates.quote_json(text)
    assert json.loads(written) == text
    assert YAML(typ="safe", pure=True).load(StringIO(f"a: {written}")) == {"a": text}
    assert tomllib.loads(f"a = {written}") == {"a": text}


@pytest.mark.parametrize("text", ["plain", "https://a.example/x?y=%2F&z=1", "a b", "it's", "(x)"])
@pytest.mark.parametrize("name", ["ini", "env"])
def test_what_is_usual_can_be_written(name: str, text: str) -> None:
    assert READERS[name](FILTERS[name](text)) == text
