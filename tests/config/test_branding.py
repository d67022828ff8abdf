"""The settings that say whose server it is."""

from pathlib import Path

import pytest

from sso.config.settings import load_settings
from sso.errors import SettingsError
from tests.support.logos import PAGE, PNG


def faults(tmp_path: Path, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, tmp_path)
    return caught.value.errors


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("Acme", "Acme"),
        ("  Acme & Söhne ", "Acme & Söhne"),
        ("<b>Acme</b>", "<b>Acme</b>"),
        ("شركة", "شركة"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("👩\u200d💻 IT", "👩\u200d💻 IT"),
        ("x" * 60, "x" * 60),
    ],
)
def test_names(tmp_path: Path, name: str, kept: str) -> None:
    assert load_settings({"SSO_NAME": name}, tmp_path).name == kept


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 200, "longer than 60 characters"),
        ("Acme\nBcc: x@example.com", "invisible"),
        ("Acme\r", "invisible"),
        ("Acme\x1b[31m", "invisible"),
        ("Acme \u202eemcA", "marks of direction"),
        ("\u200fAcme", "marks of direction"),
        ("\u2066Acme\u2069", "marks of direction"),
        ("Ac\u200bme", "invisible"),
        ("Ac\u2028me", "invisible"),
        ("Acme\ud800", "invisible"),
        ("   ", "it is empty"),
    ],
)
def test_names_that_are_refused(tmp_path: Path, name: str, words: str) -> None:
    (fault,) = faults(tmp_path, SSO_NAME=name)
    assert fault.startswith("SSO_NAME: ")
    assert words in fault
    assert "\n" not in fault


def test_a_logo(tmp_path: Path) -> None:
    path = tmp_path / "logo"
    path.write_bytes(PNG)
    assert load_settings({"SSO_LOGO_FILE": str(path)}, tmp_path).logo_file == str(path)
    (tmp_path / "path").write_text(f"{path}\n")
    by_file = {"SSO_LOGO_FILE_FILE": str(tmp_path / "path")}
    assert load_settings(by_file, tmp_path).logo_file == str(path)
    for data, words in ((PAGE, "neither"), (b"", "empty"), (b"\0" * 262_145, "larger than 256 kB")):
        path.write_bytes(data)
        (fault,) = faults(tmp_path, SSO_LOGO_FILE=str(path))
        assert words in fault
    (fault,) = faults(tmp_path, SSO_LOGO_FILE="/nowhere/logo.png")
    assert fault == (
        "SSO_LOGO_FILE: '/nowhere/logo.png' is not valid: there is no such file; check its path"
    )


@pytest.mark.parametrize("name", ["SSO_SUPPORT_URL", "SSO_PRIVACY_URL", "SSO_TERMS_URL"])
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "data:text/html,x",
        "http://example.com/",
        "//example.com/",
        "https://",
        "https://user@example.com/",
        "https://example.com/ x",
        'https://example.com/"onclick="x',
        "example.com",
    ],
)
def test_urls_that_are_refused(tmp_path: Path, name: str, url: str) -> None:
    (fault,) = faults(tmp_path, **{name: url})
    assert fault.startswith(f"{name}: {url!r} is not valid: ")
    assert "give" in fault


def test_links(tmp_path: Path) -> None:
    environ = {
        "SSO_TERMS_URL": "https://example.com/terms#use",
        "SSO_SUPPORT_URL": "mailto:help@example.com",
        "SSO_PRIVACY_URL": "https://example.com/privacy",
    }
    assert load_settings(environ, tmp_path).footer_links == [
        ("Help", "mailto:help@example.com"),
        ("Privacy policy", "https://example.com/privacy"),
        ("Terms of service", "https://example.com/terms#use"),
    ]
    assert load_settings({}, tmp_path).footer_links == []


@pytest.mark.parametrize("url", ["mailto:", "mailto:help", "mailto:a@b.example?subject=a b"])
def test_addresses_that_are_refused(tmp_path: Path, url: str) -> None:
    assert len(faults(tmp_path, SSO_SUPPORT_URL=url)) == 1


def test_all_faults_at_once(tmp_path: Path) -> None:
    environ = {
        "SSO_NAME": "a\nb",
        "SSO_LOGO_FILE": "/nowhere",
        "SSO_ACCENT_COLOR": "red",
        "SSO_SUPPORT_URL": "javascript:x",
        "SSO_PRIVACY_URL": "x",
        "SSO_TERMS_URL": "x",
    }
    found = faults(tmp_path, **environ)
    assert sorted(fault.partition(":")[0] for fault in found) == sorted(environ)
