"""Settings: defaults, files, and every fault at once."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sso.config import branding, smtp
from sso.config.settings import SETTINGS, embedded_secret_key, load_settings, read_settings
from sso.errors import SettingsError
from tests.support.logos import PAGE, PNG

LONG = "k" * 40


def faults(environ: dict[str, str], tmp_path: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, tmp_path)
    return caught.value.errors


def test_the_defaults_need_nothing(tmp_path: Path) -> None:
    settings = load_settings({}, tmp_path)
    assert settings.issuer == "http://127.0.0.1:5000/api/auth"
    assert settings.base_path == "/api/auth"
    assert settings.database_url == f"sqlite:///{tmp_path / 'sso.db'}"
    lifetimes = (
        settings.access_token_lifetime,
        settings.authorization_code_lifetime,
        settings.refresh_token_lifetime,
        settings.refresh_token_leeway,
        settings.session_lifetime,
        settings.invitation_lifetime,
        settings.trusted_proxies,
    )
    assert lifetimes == (3600, 60, 2_592_000, 10, 1_209_600, 604_800, 0)


def test_a_misspelled_name(tmp_path: Path) -> None:
    (fault,) = faults({"SSO_BASE_ULR": "https://login.example.com"}, tmp_path)
    assert fault == "SSO_BASE_ULR: no setting has this name; did you mean SSO_BASE_URL?"
    (fault,) = faults({"SSO_COLOUR_OF_PAGES": "blue"}, tmp_path)
    assert fault.endswith("remove or correct it")


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    found = faults(
        {
            "SSO_BASE_URL": "http://login.example.com",
            "SSO_ACCESS_TOKEN_LIFETIME": "soon",
            "SSO_DATABASE_URL": "oracle://x",
            "SSO_SECRET_KEY": "short",
            "SSO_REDIS_URL": "http://x",
            "SSO_TRUSTED_PROXIES": "-1",
            "SSO_COLOUR": "blue",
        },
        tmp_path,
    )
    names = {fault.split(":")[0] for fault in found}
    assert names == {
        "SSO_BASE_URL", "SSO_ACCESS_TOKEN_LIFETIME", "SSO_DATABASE_URL", "SSO_SECRET_KEY",
        "SSO_REDIS_URL", "SSO_TRUSTED_PROXIES", "SSO_COLOUR",
    }  # fmt: skip
    assert all("\n" not in fault for fault in found)


@pytest.mark.parametrize(
    "base_url",
    [
        "http://login.example.com/api/auth",
        "https://login.example.com/api/auth/",
        "https://login.example.com/?x",
        "https://login.example.com/#x",
        "ftp://login.example.com",
        "login.example.com",
        "https://user@login.example.com",
    ],
)
def test_base_urls_that_do_not_do(tmp_path: Path, base_url: str) -> None:
    assert len(faults({"SSO_BASE_URL": base_url}, tmp_path)) == 1


@pytest.mark.parametrize(
    "base_url", ["https://login.example.com", "http://localhost:1", "http://[::1]:5000/x"]
)
def test_base_urls_that_do(tmp_path: Path, base_url: str) -> None:
    assert load_settings({"SSO_BASE_URL": base_url}, tmp_path).issuer == base_url


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(LONG + "\n")
    assert load_settings({"SSO_SECRET_KEY_FILE": str(path)}, tmp_path).secret_key == LONG
    both = {"SSO_SECRET_KEY_FILE": str(path), "SSO_SECRET_KEY": LONG}
    assert "keep one of them" in faults(both, tmp_path)[0]
    missing = {"SSO_SECRET_KEY_FILE": str(tmp_path / "none")}
    assert "cannot be read" in faults(missing, tmp_path)[0]


def test_the_secret_key_before_this_one(tmp_path: Path) -> None:
    none = load_settings({"SSO_SECRET_KEY": LONG}, tmp_path)
    assert (none.secret_keys, none.signing_secrets) == ((LONG,), [LONG])
    path = tmp_path / "before"
    path.write_text("b" * 32)
    for given in (
        {"SSO_SECRET_KEY_PREVIOUS": "b" * 32},
        {"SSO_SECRET_KEY_PREVIOUS_FILE": str(path)},
    ):
        settings = load_settings({"SSO_SECRET_KEY": LONG, **given}, tmp_path)
        assert settings.secret_keys == (LONG, "b" * 32)
        assert settings.signing_secrets == ["b" * 32, LONG]
    short = faults({"SSO_SECRET_KEY_PREVIOUS": "hunter2"}, tmp_path)
    assert "shorter than 32" in short[0]
    assert "hunter2" not in short[0]
    both = {"SSO_SECRET_KEY": LONG, "SSO_SECRET_KEY_PREVIOUS": LONG}
    assert "the same" in faults(both, tmp_path)[0]
    assert len(faults({**both, "SSO_COLOUR": "blue"}, tmp_path)) == 2
    made = load_settings({}, tmp_path).secret_key
    assert "the same" in faults({"SSO_SECRET_KEY_PREVIOUS": made}, tmp_path)[0]


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    environ = {"SSO_SECRET_KEY": "hunter2", "SSO_DATABASE_URL": "mysql://u:hunter2@h/d"}
    assert "hunter2" not in "".join(faults(environ, tmp_path))


def test_the_embedded_secret_key_is_made_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(embedded_secret_key, [tmp_path] * 8))
    keys |= {embedded_secret_key(tmp_path) for _ in range(3)}
    assert len(keys) == 1
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    assert len(keys.pop()) == 64
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


@pytest.mark.parametrize(
    "environ",
    [
        {"SSO_SMTP_URL": "http://mail.example"},
        {"SSO_SMTP_URL": "smtp://"},
        {"SSO_SMTP_URL": "smtp://mail.example:99999"},
        {"SSO_SMTP_URL": "smtp://mail.example?starttls=maybe"},
        {"SSO_SMTP_URL": "smtps://mail.example?starttls=never"},
        {"SSO_SMTP_URL": "smtp://mail.example?tls=required"},
        {"SSO_MAIL_FROM": "sso"},
        {"SSO_MAIL_FROM": "sso@example.com\nBcc: x@example.com"},
        {"SSO_SIGN_UP": "yes"},
        {"SSO_SIGN_UP": "@example.com"},
    ],
)
def test_mail_settings_that_do_not_do(tmp_path: Path, environ: dict[str, str]) -> None:
    assert len(faults(environ, tmp_path)) == 1


def test_a_part_of_the_mail_password_is_not_shown(tmp_path: Path) -> None:
    environ = {"SSO_SMTP_URL": "smtp://me:hunter2/x@mail.example"}
    assert "hunter2" not in "".join(faults(environ, tmp_path))


def test_mail_within_the_operators_own_network(tmp_path: Path) -> None:
    environ = {"SSO_MAIL_FROM": "sso@mail.corp.local", "SSO_SIGN_UP": "corp.local home.arpa"}
    settings = load_settings(environ, tmp_path)
    assert (settings.mail_from, settings.sign_up) == (
        environ["SSO_MAIL_FROM"],
        "corp.local home.arpa",
    )


def test_mail_settings_that_do(tmp_path: Path) -> None:
    environ = {
        "SSO_SMTP_URL": "smtp://me%40x:p%2Fw@mail.example:2525?starttls=required",
        "SSO_MAIL_FROM": "SSO@example.com",
        "SSO_SIGN_UP": "Example.com, example.org",
    }
    settings = load_settings(environ, tmp_path)
    assert settings.sign_up == "example.com example.org"
    assert settings.mail_from == "sso@example.com"
    assert settings.smtp_url
    found = smtp.parse(settings.smtp_url)
    assert (found.host, found.port, found.user, found.password, found.starttls) == (
        "mail.example", 2525, "me@x", "p/w", "required",
    )  # fmt: skip
    assert smtp.parse("smtps://mail.example").port == 465
    assert load_settings({}, tmp_path).sign_up == "off"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("SSO_SESSION_LIFETIME", "2h", "'2h' {}: give a whole number from 60 to 31622400"),
        ("SSO_LOG_FORMAT", "xml", "'xml' {}: give one of text, json"),
        ("SSO_METRICS_ADDRESS", "here", "'here' {}: give an IP address such as 127.0.0.1"),
        ("SSO_REDIS_URL", "x", "the value {}: give an address such as redis://host:port"),
        ("SSO_SMTP_URL", "x", "the value {}: give an address such as smtp://host:port"),
        ("SSO_MAIL_FROM", "x", "'x' {}: give an email address such as sso@example.com"),
    ],
)
def test_the_words_of_a_fault(name: str, text: str, words: str) -> None:
    assert read_settings({name: text}).errors == [f"{name}: {words.format('is not valid')}"]


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://help.example/", True),
        ("https://help.example/?a=b#c", True),
        ("mailto:help@example.com", True),
        ("mailto:help@corp.local?subject=sso%20help", True),
        ("http://help.example/", False),
        ("https://", False),
        ("https://help.example/a b", False),
        ("https://me:secret@help.example/", False),
        ("help@example.com", False),
        ("mailto:", False),
        ("mailto:help", False),
        ("mailto:help@example.com?subject=a b", False),
        ("mailto:help@example.com?subject=a\nbcc", False),
        ("mailto:help@example.com?" + "x" * 3000, False),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("//help.example/", False),
        ("https://help.example/" + "x" * 3000, False),
    ],
)
def test_where_help_is(url: str, good: bool) -> None:
    found = read_settings({"SSO_SUPPORT_URL": url}).errors
    assert (found == []) is good
    if not good:
        assert found[0].startswith("SSO_SUPPORT_URL: ")


# The settings that say whose server it is.


def faults_of(tmp_path: Path, **environ: str) -> list[str]:
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
    (fault,) = faults_of(tmp_path, SSO_NAME=name)
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
        (fault,) = faults_of(tmp_path, SSO_LOGO_FILE=str(path))
        assert words in fault
    (fault,) = faults_of(tmp_path, SSO_LOGO_FILE="/nowhere/logo.png")
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
    (fault,) = faults_of(tmp_path, **{name: url})
    assert fault.startswith(f"{name}: {url!r} is not valid: ")
    assert "give" in fault


def test_links(tmp_path: Path) -> None:
    environ = {
        "SSO_TERMS_URL": "https://example.com/terms#use",
        "SSO_SUPPORT_URL": "mailto:help@example.com",
        "SSO_PRIVACY_URL": "https://example.com/privacy",
    }
    assert branding.of_settings(load_settings(environ, tmp_path)).footer_links == [
        ("Help", "mailto:help@example.com"),
        ("Privacy policy", "https://example.com/privacy"),
        ("Terms of service", "https://example.com/terms#use"),
    ]
    assert branding.of_settings(load_settings({}, tmp_path)).footer_links == []


@pytest.mark.parametrize("url", ["mailto:", "mailto:help", "mailto:a@b.example?subject=a b"])
def test_addresses_that_are_refused(tmp_path: Path, url: str) -> None:
    assert len(faults_of(tmp_path, SSO_SUPPORT_URL=url)) == 1


def test_all_faults_at_once(tmp_path: Path) -> None:
    environ = {
        "SSO_NAME": "a\nb",
        "SSO_LOGO_FILE": "/nowhere",
        "SSO_ACCENT_COLOR": "red",
        "SSO_SUPPORT_URL": "javascript:x",
        "SSO_PRIVACY_URL": "x",
        "SSO_TERMS_URL": "x",
    }
    found = faults_of(tmp_path, **environ)
    assert sorted(fault.partition(":")[0] for fault in found) == sorted(environ)


# Settings at their bounds: the last value that does, and the first that does not.


def does(tmp_path: Path, **environ: str) -> bool:
    try:
        load_settings(environ, tmp_path)
    except SettingsError as error:
        assert len(error.errors) == 1
        assert next(iter(environ)) in error.errors[0]
        return False
    return True


@pytest.mark.parametrize(("length", "good"), [(8, False), (31, False), (32, True)])
def test_a_secret_key(tmp_path: Path, length: int, good: bool) -> None:
    assert does(tmp_path, SSO_SECRET_KEY="k" * length) is good
    path = tmp_path / "key"
    path.write_text("k" * length + "\n")
    if good:
        settings = load_settings({"SSO_SECRET_KEY_FILE": str(path)}, tmp_path)
        assert settings.secret_key == "k" * length
    else:
        with pytest.raises(SettingsError):
            load_settings({"SSO_SECRET_KEY_FILE": str(path)}, tmp_path)


DAY, YEAR = 24 * 3600, 366 * 24 * 3600
BOUNDS = {
    "SSO_TRUSTED_PROXIES": (0, 10),
    "SSO_ACCESS_TOKEN_LIFETIME": (1, DAY),
    "SSO_AUTHORIZATION_CODE_LIFETIME": (1, 600),
    "SSO_REFRESH_TOKEN_LIFETIME": (1, YEAR),
    "SSO_REFRESH_TOKEN_LEEWAY": (0, 3600),
    "SSO_SESSION_LIFETIME": (60, YEAR),
    "SSO_SESSION_ABSOLUTE_LIFETIME": (60, 2 * YEAR),
    "SSO_KEY_LIFETIME": (DAY, 10 * YEAR),
    "SSO_AUDIT_LIFETIME": (DAY, 20 * YEAR),
    "SSO_METRICS_PORT": (1, 65535),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers(tmp_path: Path, name: str) -> None:
    low, high = BOUNDS[name]
    for value, good in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
        assert does(tmp_path, **{name: str(value)}) is good, value
    for text in ("1.5", "1e3", " 1", "+1", "٣", "1_000", "9" * 30):
        assert not does(tmp_path, **{name: text})


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("http://127.0.0.1:5000/x", True),
        ("http://127.8.8.8/x", True),
        ("http://[::1]/x", True),
        ("http://localhost/x", True),
        ("http://localhost.example.com/x", False),
        ("http://notlocalhost/x", False),
        ("http://127.0.0.1.example.com/x", False),
        ("http://0.0.0.0/x", False),
        ("http://10.0.0.1/x", False),
        ("http://[::ffff:10.0.0.1]/x", False),
        ("http:///x", False),
        ("https:///x", False),
        ("https://login.example.com:x/", False),
        ("javascript:alert(1)", False),
        ("https://login.example.com/a b", False),
    ],
)
def test_base_urls(tmp_path: Path, url: str, good: bool) -> None:
    assert does(tmp_path, SSO_BASE_URL=url) is good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("off", True),
        ("open", True),
        ("example.com", True),
        ("example.com, example.org", True),
        ("localhost", False),
        ("all", False),
        ("@example.com", False),
        ("example.com on", False),
    ],
)
def test_who_may_sign_up(tmp_path: Path, text: str, good: bool) -> None:
    assert does(tmp_path, SSO_SIGN_UP=text) is good


@pytest.mark.parametrize("name", [one.name for one in SETTINGS if one.secret])
def test_no_secret_is_told_by_its_fault(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({name: "x://u:hunter2@h:port/"}, tmp_path)
    assert "hunter2" not in "".join(caught.value.errors)


def test_what_is_no_secret_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"SSO_SIGN_UP": "hunter2"}, tmp_path)
    assert "hunter2" in "".join(caught.value.errors)


def test_insecure_transport_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings({}, tmp_path)
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with pytest.raises(SettingsError):
        load_settings({}, tmp_path)


def test_the_key_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    key = load_settings({}, tmp_path).secret_key
    assert len(key) >= 32
    path = tmp_path / "secret_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_settings({}, tmp_path).secret_key == key
    assert [one.name for one in tmp_path.iterdir()] == ["secret_key"]
