"""Messages: English for programs, the reader's language on pages."""

import copy
import pickle

import pytest
from flask import Flask, render_template_string

from sso.i18n.languages import said
from sso.i18n.message import Message, Quote


def test_a_program_reads_english() -> None:
    inner = Message("Applications")
    message = Message("%(name)s: %(number)d, %(inner)s", name="<b>", number=3, inner=inner)
    for same in (message, copy.copy(message), pickle.loads(pickle.dumps(message))):
        assert same == "<b>: 3, Applications"
        assert (same.text, same.variables) == (message.text, message.variables)
    with pytest.raises(KeyError):
        Message("%(name)s")


def test_a_person_reads_his_language(app: Flask) -> None:
    with app.test_request_context(headers={"Accept-Language": "de"}):
        assert said(Message("Applications")) == "Anwendungen"
        inner = Message("%(inner)s", inner=Message("Applications"))
        assert said(inner) == "Anwendungen"
        assert said(Message("%(n)d", n=3)) == "3"
        in_form = Message("Applications", for_commands="--option")
        assert render_template_string("{{ one|fault }}", one=in_form) == "Anwendungen"
        assert (in_form, copy.copy(in_form).text) == ("--option", "Applications")


def test_what_a_stranger_wrote_stays_text(app: Flask) -> None:
    with app.test_request_context():
        assert said(Message("%(name)s", name="<b>%(x)s")) == "<bdi>&lt;b&gt;%(x)s</bdi>"
        assert said("<b>") == '<span lang="en" dir="ltr">&lt;b&gt;</span>'


def test_what_another_program_says_is_marked_as_english(app: Flask) -> None:
    with app.test_request_context(headers={"Accept-Language": "de"}):
        quoted = said(Message("%(name)s", name=Quote("no <route> to host")))
    assert quoted == '<bdi lang="en">no &lt;route&gt; to host</bdi>'
