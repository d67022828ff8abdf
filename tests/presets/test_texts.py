"""What people read of presets, in their language."""

import re

import pytest
from flask import Flask

from sso.i18n.languages import preset_text, technical
from sso.presets import loader, templates
from tests.support.actors import BASE
from tests.support.administration import ADMIN, sign_in_staff


@pytest.mark.slow
def test_pages_show_a_preset_in_the_language_of_the_reader(app: Flask) -> None:
    staff = sign_in_staff(app)
    staff.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    listed = staff.open(f"{ADMIN}/application/new").html
    assert "Dashboards, Datenanalyse und Alarme." in listed
    form = staff.open(f"{ADMIN}/application/preset?preset=grafana").html
    assert "Dashboards, Datenanalyse und Alarme." in form
    assert "Mitglieder dieser Gruppe administrieren die Grafana-Organisation." in form
    done = staff.send(url="https://grafana.example").html
    client_id = re.search(r"application\?id=([\w-]+)", done)
    assert client_id
    shown = staff.open(f"{ADMIN}/application/setup?id={client_id[1]}").html
    for page in (done, shown):
        assert "/etc/grafana/grafana.ini, dann Grafana neu starten" in page
        assert "Rollen werden bei jeder Anmeldung gesetzt;" in page
    assert 'lang="en"' not in (listed + form + done + shown).replace('<pre lang="en"', "")


def test_what_is_registered_is_the_same_in_each_language(app: Flask) -> None:
    with app.test_request_context(BASE, headers={"Accept-Language": "ja"}):
        for preset in loader.every():
            found = templates.translated(preset, preset_text)
            assert found.registration == preset.registration
            assert [block.text for block in found.setup] == [block.text for block in preset.setup]
            assert found.summary != preset.summary
            assert all(a != b for a, b in zip(found.notes, preset.notes, strict=True))
    with app.test_request_context(BASE):
        assert templates.translated(preset, preset_text) == preset, "English is the original"


def test_latin_words_keep_their_direction_among_arabic_ones(app: Flask) -> None:
    text = "الملف /etc/a_b.conf، ثم: a2ensite <x> && b. (`c < d`)"
    with app.test_request_context(BASE, headers={"Accept-Language": "ar"}):
        assert technical(text) == (
            'الملف <bdi dir="ltr">/etc/a_b.conf</bdi>، ثم: '
            '<bdi dir="ltr">a2ensite &lt;x&gt; &amp;&amp; b</bdi>. '
            '(<code dir="ltr">c &lt; d</code>)'
        )
    with app.test_request_context(BASE):
        assert technical("a `b` <c>") == 'a <code dir="ltr">b</code> &lt;c&gt;'
