"""The operator's own templates: what the folder may hold, and the contract about it."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import DictLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from sso.config import overrides
from sso.config.mail_texts import TEXTS as BUILT_IN_TEXTS
from sso.config.overrides import BLOCKS, BUILT_IN, STYLE, TEXTS
from sso.config.tables import ManyErrors
from sso.web import static_files

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "templates.md"


def errors(folder: Path, source: str | None = None, name: str = "sign_in.html") -> list[str]:
    """What is wrong with the folder; with `source`, as its only file."""
    if source is not None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(source)
    try:
        overrides.read(folder)
    except ManyErrors as error:
        return error.errors
    return []


def block(body: str, name: str = "help") -> str:
    return f'{{% extends "sso/sign_in.html" %}}{{% block {name} %}}{body}{{% endblock %}}'


def test_the_reference_lists_what_there_is() -> None:
    text = REFERENCE.read_text()
    found = {}
    for name, blocks, variables in re.findall(r"^\| `(\S+)` \| (`.*?`) \|(.*)\|$", text, re.M):
        if name in BLOCKS:
            names = [tuple(re.findall(r"`(\w+)`", one)) for one in (blocks, variables)]
            found[name] = tuple(names)
    assert found == BLOCKS
    style = (Path(static_files.FOLDER) / "sso.css").read_text()
    promised = text.partition("## Style")[2]
    for name in re.findall(r"^\| `(\S+)` \|", promised, re.M):
        assert re.search(rf"(?m)^ *{re.escape(name)}[ ,:]", style), name
    text = text.partition("## Style")[0]
    kinds = dict(re.findall(r"^\| `(\w+)` \|((?: `\{.*)?.*)\|$", text.partition("| kind")[2], re.M))
    assert {kind: tuple(re.findall(r"\{(\w+)\}", more)) for kind, more in kinds.items()} == {
        kind: text.placeholders for kind, text in BUILT_IN_TEXTS.items()
    }


@pytest.mark.parametrize("name", BLOCKS)
def test_the_built_in_templates_have_the_blocks(name: str) -> None:
    """Each one once, and with something to compare a later version with."""
    source = (BUILT_IN / name).read_text()
    for one in BLOCKS[name][0]:
        assert len(re.findall(rf"{{% block {one} %}}", source)) == 1
    digests = {overrides.fingerprint(name, [one]) for one in BLOCKS[name][0]}
    assert digests


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<p>New here? <a href='https://acme.example/help'>Read this</a>.</p>",
        "{{ super() }}<p>{% if client_name %}{{ client_name }}{% else %}-{% endif %}</p>",
        "{% if language() == 'de' %}<p>Hallo</p>{% elif language() != 'fr' %}<b>Hi</b>{% endif %}",
        '<img src="{{ brand.logo }}" alt="{{ brand.name }}">',
        '<a href="{{ support_url() }}">{{ _("Get help") }}</a>',
        "{{ brand.name|upper }} {{ 'a' ~ client_name }} {{ 'x' if reauthenticate else 'y' }}",
        "&lt; &amp; 5 > 3 {# another #}",
        '<a href="mailto:x@example.com">x</a><br><hr><a href="/api/auth/account">y</a>',
    ],
)
def test_what_is_taken(tmp_path: Path, body: str) -> None:
    assert errors(tmp_path, block(body)) == []
    render(block(body))


SANDBOX = SandboxedEnvironment(
    autoescape=True,
    undefined=StrictUndefined,
    loader=DictLoader({"sso/sign_in.html": "{% block help %}built in{% endblock %}"}),
)


def render(source: str) -> None:
    """What is taken fails with no value, and reaches nothing that a sandbox forbids."""
    functions = dict.fromkeys(("language", "direction", "support_url"), lambda: "de")
    for value in ("", "<a>"):
        SANDBOX.from_string(source).render(
            client_name=value, reauthenticate=bool(value), brand={"name": value, "logo": value},
            _=lambda text: text, **functions,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{{ clientname }}", "line 1: clientname is not known here; known: client_name"),
        ("\n{{ user.password_hash }}", "line 2: .password_hash is not known"),
        ("{{ ''.__class__ }}", ".__class__ is not known"),
        ("{{ brand.links }}", ".links is not known"),
        ("{{ brand }}", "write brand.name or brand.logo"),
        ("{{ language }}", "language is a function: write language()"),
        ("{{ url_for('pages.sign_in') }}", "url_for() is not known"),
        ("{{ config }}", "config is not known"),
        ("{{ self }}", "self is not known"),
        ("{{ _(client_name) }}", "_() takes one text"),
        ("{{ _('100 %') }}", "without %"),
        ("{{ super(1) }}", "super() takes nothing"),
        ("{{ client_name|safe }}", "the filter safe is not known"),
        ("{{ client_name|attr('x') }}", "the filter attr is not known"),
        ("{% autoescape false %}{{ client_name }}{% endautoescape %}", "cannot be used here"),
        ("{% include 'base.html' %}", "Include cannot be used here"),
        ("{% import '_macros.html' as ui %}", "Import cannot be used here"),
        ("{% for i in 'x' %}{% endfor %}", "For cannot be used here"),
        ("{% set x = 1 %}", "Assign cannot be used here"),
        ("{{ client_name[0] }}", "Getitem cannot be used here"),
        ("{{ 1 / 0 }}", "Div cannot be used here"),
        ("{% if client_name in 'x' %}{% endif %}", "line 1: compare with == or != only"),
        ("{% block content %}{% endblock %}", "there is no block content"),
        ("{% trans %}x{% endtrans %}", "unknown tag 'trans'"),
        ("{% if %}", "line 1: Expected an expression"),
        ("<script>1</script>", "<script> cannot be used here"),
        ("<form action='//x'></form>", "<form> cannot be used here"),
        ("<p style='color:red'>x</p>", "the content security policy stops it"),
        ("<p onclick='x()'>x</p>", "onclick= cannot be used"),
        ("<a href='javascript:x()'>x</a>", "href= has to begin with"),
        ("<a href='//evil.example'>x</a>", "href= has to begin with"),
        ("<a href='{{ client_name }}'>x</a>", "write the URL itself"),
        ("<p class={{ client_name }}>x</p>", "into quotes"),
        ("<p class='{{ client_name }}'>x</p>", "class= takes fixed text only"),
        ("<img src='https://tracker.example/x'>", "src= has to be a path of this server"),
        ("<p>open", "<p> is not closed"),
        ("x</div>", "</div> closes nothing"),
        ("{% if client_name %}<p>{% endif %}</p>", "</p> closes nothing"),
        ("{% if client_name %}<p>x</p>{% else %}<p>{% endif %}", "<p> is not closed"),
        ("<a href='x", "a tag is not complete"),
        ("<p>x</p", "a tag is not complete"),
        ("a < b", "a tag is not complete"),
        ("<!-- x", "write comments as {#"),
        ("<a href='java&#115;cript:x()'>x</a>", "href= has to begin with"),
        ("<a href=' &Tab;javascript:x()'>x</a>", "href= has to begin with"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, body: str, words: str) -> None:
    found = errors(tmp_path, block(body))
    assert any(words in one for one in found), found
    assert all(one.startswith("sign_in.html: ") for one in found)


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("signin.html", "", "did you mean sign_in.html?"),
        ("account.html", "", "no template of this name"),
        ("sign_in.html", "{% block help %}{% endblock %}", "has to begin with"),
        ("sign_in.html", '{% extends "base.html" %}', "has to begin with"),
        ("sign_in.html", '{% extends "sso/base.html" %}', 'extends "sso/sign_in.html"'),
        ("sign_in.html", '{% extends "sso/sign_in.html" %}x', "outside of blocks"),
        ("sign_in.html", block("<p>x</p>", "heading"), "block heading: <p> cannot be used"),
        ("sign_in.html", block("x" * 70_000), "larger than 64 kB"),
        (STYLE, "p {}\n@import 'x.css';", "line 2: the content security policy stops @import"),
        (STYLE, "p { background: url( 'https://x.example/y') }", "stops url( 'https:"),
        (STYLE, "/*\n*/ p { background: URL(//x.example/y) }", "line 2: "),
        (STYLE, "p { background: url(data:image/png;base64,x) }", "stops url(data:"),
        (STYLE, "@font-face { font-family: x }", "stops @font-face"),
        (STYLE, "p { color: red", "each { needs a }"),
        (STYLE, "p {} /* url(https://x.example)", "a comment is not closed"),
        (STYLE, "x" * 70_000, "larger than 64 kB"),
        (TEXTS, "x", "it is not TOML"),
        (TEXTS, "[rest.en]", "[rest] is no kind of mail; did you mean reset?"),
        (TEXTS, "[reset]\nsubject = 'x'", "[reset.subject] is not one of the languages"),
        (TEXTS, "[reset.xx]", "[reset.xx] is not one of the languages"),
        (TEXTS, "[reset.en]\ntitle = 'x'", "known are subject, paragraphs and action"),
        (TEXTS, "[reset.en]\nsubject = ['x']", "give a text"),
        (TEXTS, "[reset.en]\nsubject = ' '", "give a text"),
        (TEXTS, '[reset.en]\nsubject = "a\\nBcc: x"', "give one line"),
        (TEXTS, "[reset.en]\nparagraphs = 'x'", "give a list of texts"),
        (TEXTS, "[reset.en]\nparagraphs = []", "give a list of texts"),
        (TEXTS, "[reset.en]\nparagraphs = ['x', ' ']", "give a list of texts"),
        (TEXTS, "[reset.en]\nsubject = '{code}'", "{code} is not known here"),
        (TEXTS, "[reset.en]\nsubject = '{service.__class__}'", "is not known here"),
        (TEXTS, "[reset.en]\nsubject = '{service!r}'", "is not known here"),
        (TEXTS, "[reset.en]\nsubject = '{service:>9999999}'", "is not known here"),
        (TEXTS, "[reset.en]\nsubject = '{'", "a brace is open"),
        (TEXTS, "[reset.en]\nsubject = '{}'", "is not known here"),
        (TEXTS, "[enrolment_code.en]\nparagraphs = ['x']", "they lack {code}"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, source: str, words: str) -> None:
    found = errors(tmp_path, source, name)
    assert any(words in one for one in found), found


def test_rules_that_are_taken(tmp_path: Path) -> None:
    rules = """.card::before { content: "} /* {"; } /* url(https://x.example) { */
    body { background: url("/api/auth/static/logo") }"""
    assert errors(tmp_path, rules, STYLE) == []
    assert overrides.read(tmp_path).style == rules


def test_the_secret_of_a_link_goes_to_nobody_else(tmp_path: Path) -> None:
    source = '{% extends "sso/mail/message.html" %}{% block header %}BODY{% endblock %}'
    for body, fits in {
        '<a href="{{ link }}">{{ action }}</a>': True,
        '<a href="{{ base_url }}/account" style="color:red">x</a>': True,
        '<img src="https://acme.example/logo.png" alt="">': True,
        '<img src="https://tracker.example/?{{ link }}" alt="">': False,
        '<a href="https://tracker.example/?{{ link }}">x</a>': False,
    }.items():
        found = errors(tmp_path, source.replace("BODY", body), "mail/message.html")
        assert (found == []) is fits, found


def test_every_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "nowhere.html").write_text("")
    (tmp_path / "sign_up.html").write_bytes(b"\xff")
    source = block("{{ a }}\n{{ b }}<p>")
    found = errors(tmp_path, source)
    assert [one.partition(":")[0] for one in found] == [
        "nowhere.html", "sign_in.html", "sign_in.html", "sign_in.html", "sign_up.html",
    ]  # fmt: skip


def test_what_others_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    assert errors(folder, block("x")) == []
    (folder / "sign_in.html").chmod(0o666)
    assert "everyone can write to it" in errors(folder)[0]
    (folder / "sign_in.html").chmod(0o644)
    folder.chmod(0o777)
    assert f"chmod o-w {folder}" in errors(folder)[0]
    folder.chmod(0o755)
    tmp_path.chmod(0o777)
    assert f"chmod o-w {tmp_path}" in errors(folder)[0]
    tmp_path.chmod(0o1777)
    assert errors(folder) == []
    folder.chmod(0o777)
    monkeypatch.setattr(overrides, "is_read_only", lambda _: True)
    assert errors(folder) == []


def test_links(tmp_path: Path) -> None:
    """As in a ConfigMap of Kubernetes; but none that leads out of the folder."""
    folder = tmp_path / "own"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..2026" / "sign_in.html").write_text(block("x"))
    (folder / "..data").symlink_to("..2026")
    (folder / "sign_in.html").symlink_to("..data/sign_in.html")
    assert list(overrides.read(folder).templates) == ["sign_in.html"]
    (tmp_path / "secret").write_text("x")
    (folder / "sign_up.html").symlink_to("../secret")
    (folder / "base.html").symlink_to("nowhere")
    (folder / "error.html").mkdir()
    assert [one.partition(";")[0] for one in errors(folder)] == [
        "base.html: it is not a file",
        "error.html: it is not a file",
        "sign_up.html: it is a link that leads out of the folder",
    ]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("README.md", ".sign_in.html.swp", "sign_in.html~", ".x.html"):
        (tmp_path / name).write_text("{{ x")
    assert errors(tmp_path) == []


@pytest.mark.parametrize("place", ["", "nowhere", "a file"])
def test_no_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    if place:
        assert "it is not a folder" in errors(tmp_path / place)[0]


PARTS = (
    *"{}%#<>/'= abp.|()[]0-~", "{{ ", " }}", "{% if ", " %}", "{% else %}", "{% endif %}",
    "client_name", "brand.name", "language()", "super()", "_('x')", "|upper", "|title", " ~ ",
    " == ", " != ", " and ", " or ", "not ", " if ", " else ", "'x'", "1", "none", "(", ")", "<p>",
    "</p>",
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
def test_anything_is_taken_or_named(tmp_path_factory: pytest.TempPathFactory, body: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "anything"
    folder.mkdir(exist_ok=True)
    found = errors(folder, block(body))
    assert all(error.startswith("sign_in.html: ") for error in found)
    if not found:
        render(block(body))


EXPRESSION = st.recursive(
    st.sampled_from(["client_name", "reauthenticate", "brand.logo", "language()", "super()",
                     "_('x')", "'x'", "1", "1.5", "none", "true"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["|upper", "|title", "|trim", "|e"])).map("".join),
        st.tuples(inner, st.sampled_from(["~", "==", "!=", "and", "or", "<", "+", "in"]), inner)
        .map(" ".join).map("({})".format),
        inner.map("(not {})".format),
        st.tuples(inner, inner, inner).map(lambda parts: "({} if {} else {})".format(*parts)),
    ),
    max_leaves=6,
)  # fmt: skip


@given(EXPRESSION)
def test_no_expression_that_is_taken_fails(
    tmp_path_factory: pytest.TempPathFactory, expression: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "expressions"
    folder.mkdir(exist_ok=True)
    body = block(f"{{{{ {expression} }}}}{{% if {expression} %}}x{{% endif %}}")
    if not errors(folder, body):
        render(body)
