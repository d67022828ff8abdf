"""Settings at their bounds: the last value that does, and the first that does not."""

import stat
from pathlib import Path

import pytest

from sso.config.settings import SETTINGS, load_settings
from sso.errors import SettingsError


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
