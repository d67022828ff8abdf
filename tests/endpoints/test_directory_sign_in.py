"""Sign-in with the name and password of a directory (OpenLDAP), and the life after it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from sqlalchemy import select

from sso import audit, context
from sso.checkup import others
from sso.doctor.command import doctor_command
from sso.extensions import db
from sso.jobs import upkeep, worker
from sso.metrics.gauges import _directory_ages
from sso.models import BrowserSession, Identity, User
from sso.process import concurrency
from sso.services import accounts, identities, mail_links
from tests.conftest import Clock
from tests.support import administration, directories
from tests.support.actors import BASE, Browser, Page
from tests.support.administration import sign_in_staff
from tests.support.directories import ADMIN, ADMIN_PASSWORD, GROUPS, PASSWORD, OpenLdap
from tests.support.events import events
from tests.support.factories import make_attribute, make_client, make_user
from tests.support.mailbox import Mailbox, MailServer, text_of
from tests.support.processes import free_port
from tests.support.upstreams import counted

pytestmark = pytest.mark.slow
PATH = f"{BASE}/sign-in/directory/corp"
WRONG = "The name or the password is wrong."


@pytest.fixture(scope="module")
def slapd() -> Iterator[OpenLdap]:
    with directories.slapd() as server:
        dn = server.person("dana")
        server.group("staff", dn)
        yield server


@pytest.fixture
def make(slapd: OpenLdap, make_app: Callable[..., Flask], tmp_path: Path) -> Callable[..., Flask]:
    """An application with this directory, and these lines in its table."""

    def made(*lines: str, port: int = slapd.port) -> Flask:
        (tmp_path / "password").write_text(ADMIN_PASSWORD)
        file = tmp_path / "upstream.toml"
        file.write_text(
            "\n".join(
                [
                    "[provider.corp]", 'type = "ldap"', 'name = "Example"',
                    'directory = "openldap"', f'base = "{directories.BASE}"',
                    f'servers = ["ldap://127.0.0.1:{port}"]',
                    f'ca_file = "{slapd.certificate}"', f'bind_dn = "{ADMIN}"',
                    f'bind_password_file = "{tmp_path}/password"', "timeout = 2", *lines,
                ]
            )
        )  # fmt: skip
        return make_app(SSO_UPSTREAM_FILE=str(file))

    return made


EVERYBODY = ("trust_email = true", "sign_up = true")


def sign_in(browser: Browser, name: str, password: str = PASSWORD) -> Page:
    if browser.page.path != PATH:
        browser.open(PATH)
    return browser.submit(user_name=name, password=password)


def reasons(app: Flask) -> list[str]:
    return [one["reason"] for one in events(app, "sign_in_failed")]


def live_sessions(app: Flask) -> int:
    with app.app_context():
        found = select(BrowserSession).where(BrowserSession.ended_at.is_(None))
        return len(db.session.scalars(found).all())


def recheck(app: Flask) -> int | None:
    job = next(one for one in worker.JOBS if one.run is upkeep.recheck_directories)
    return worker.run_once(app, job)


def test_from_the_application_and_back(make: Callable[..., Flask]) -> None:
    app = make(*EVERYBODY, f'groups = {{ "cn=STAFF, {GROUPS}" = "employees" }}')
    browser, client = Browser(app), make_client(app)
    browser.authorize(client)
    assert ("upstream", "corp") in browser.page.buttons
    page = browser.submit(upstream="corp", email="dana")
    assert 'value="dana"' in page.html
    assert WRONG in browser.submit(user_name="dana", password="wrong").html
    page = browser.submit(user_name="dana", password=PASSWORD)
    assert page.path == f"{BASE}/consent"
    tokens = client.exchange(browser.allow().code).json
    assert tokens
    answer = client.userinfo(tokens["access_token"]).json
    assert answer
    assert (answer["email"], answer["name"]) == ("dana@example.org", "Dana Doe")
    with app.app_context():
        user = db.session.scalars(select(User)).one()
        assert (user.password_hash, user.groups) == (None, ["employees"])
        session = db.session.scalars(select(BrowserSession)).one()
        assert session.amr == "pwd"
        assert db.session.scalars(select(Identity)).one().issuer == "ldap:corp"
    assert reasons(app) == ["password"]


def test_who_is_refused(make: Callable[..., Flask], slapd: OpenLdap) -> None:
    app, clear = make(*EVERYBODY), f"{PASSWORD}!"
    slapd.person("fresh", "pwdReset: TRUE")
    slapd.person("ended", "shadowExpire: 10")
    browser = Browser(app)
    assert WRONG in sign_in(browser, "nobody").html
    assert WRONG in sign_in(browser, "dana", clear).html
    assert WRONG in sign_in(browser, "*").html
    assert "Enter your password" in sign_in(browser, "dana", "").html
    assert WRONG in sign_in(browser, "fresh", clear).html
    assert "has expired. Change it in" in sign_in(browser, "fresh").html
    assert WRONG in sign_in(browser, "ended", clear).html
    assert "is disabled" in sign_in(browser, "ended").html
    assert reasons(app) == [
        *("unknown", "password", "unknown", "password", "password must change"),
        *("password", "expired"),
    ]
    assert live_sessions(app) == 0
    assert browser.open(f"{BASE}/sign-in/directory/other").status == 404


def test_another_account_with_the_same_email(make: Callable[..., Flask], slapd: OpenLdap) -> None:
    """The address alone opens no account: not a twin's, nor that of somebody who has left."""
    app = make(*EVERYBODY)
    slapd.person("twin", mail="one@example.org")
    assert sign_in(Browser(app), "twin").path == f"{BASE}/account"
    second = slapd.person("twin2", mail="one@example.org")
    assert sign_in(Browser(app), "twin2").path == f"{BASE}/sign-in"  # proves the account first
    slapd.remove(f"uid=twin,{directories.PEOPLE}")
    slapd.remove(second)
    slapd.person("twin", mail="one@example.org")
    assert sign_in(Browser(app), "twin").path == f"{BASE}/sign-in"
    with app.app_context():
        assert len(db.session.scalars(select(Identity)).all()) == 1


def test_an_email_is_trusted_only_if_the_operator_says_so(make: Callable[..., Flask]) -> None:
    app = make("sign_up = true")
    make_user(app, "dana@example.org")
    browser = Browser(app)
    assert sign_in(browser, "dana").path == f"{BASE}/sign-in"
    browser.sign_in("dana@example.org")
    assert browser.page.path == f"{BASE}/sign-in/connect"
    browser.submit(decision="connect")
    assert sign_in(Browser(app), "dana").path == f"{BASE}/account"


def test_strangers_do_not_lock_the_account(make: Callable[..., Flask], slapd: OpenLdap) -> None:
    """slapd locks after five; by whichever name, from wherever, fewer are passed on."""
    app = make(*EVERYBODY)
    slapd.person("kim")
    at_home = Browser(app)
    assert sign_in(at_home, "kim").path == f"{BASE}/account"
    for number in range(12):
        stranger = Browser(app)
        stranger.http.environ_base["REMOTE_ADDR"] = f"192.0.2.{number}"
        name = ("kim", "KIM", "kim@example.org")[number % 3]
        page = sign_in(stranger, name, f"guess {number}")
    assert page.status == 429
    assert "Too many attempts" in page.html
    assert sign_in(at_home, "kim", "mistyped").status == 200
    assert sign_in(at_home, "kim").path == f"{BASE}/account"


def test_a_directory_that_is_away(
    make: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make(port=free_port())
    make_user(app)
    page = sign_in(Browser(app), "dana")
    assert page.status == 503
    assert "Example" in page.html
    assert Browser(app).sign_in().path == f"{BASE}/account"
    monkeypatch.setattr(concurrency, "REFUSAL_DELAY", 0.5)
    working, begun = make(), monotonic()
    assert WRONG in sign_in(Browser(working), "nobody").html
    assert monotonic() - begun >= 0.5


def test_who_leaves_the_directory_loses_access(
    make: Callable[..., Flask], slapd: OpenLdap, clock: Clock
) -> None:
    app = make(*EVERYBODY, f'groups = {{ "cn=night,{GROUPS}" = "night" }}', "recheck = 600")
    client = make_client(app)
    dn = slapd.person("robin")
    browser = Browser(app)
    sign_in(browser, "robin")
    browser.authorize(client, scope="openid offline_access")
    tokens = client.exchange(browser.allow().code).json
    assert tokens
    assert recheck(app) == 0  # asked a moment ago
    slapd.group("night", dn)
    clock.move(seconds=601)
    assert recheck(app) == 1
    with app.app_context():
        assert db.session.scalars(select(User)).one().groups == ["night"]
    assert recheck(app) == 0
    slapd.change(f"dn: {dn}\nchangetype: modify\nadd: shadowExpire\nshadowExpire: 10\n")
    clock.move(seconds=601)
    assert recheck(app) == 1
    assert live_sessions(app) == 0
    assert client.refresh(tokens["refresh_token"]).status_code == 400
    (disabled,) = events(app, "user_disabled")
    assert (disabled["by"], disabled["reason"]) == ("corp", "expired")
    slapd.change(f"dn: {dn}\nchangetype: modify\ndelete: shadowExpire\n")
    assert sign_in(Browser(app), "robin").path == f"{BASE}/account"
    slapd.remove(dn)
    clock.move(seconds=601)
    assert recheck(app) == 1
    assert live_sessions(app) == 0


def test_an_outage_ends_nothing(make: Callable[..., Flask], clock: Clock) -> None:
    app = make(*EVERYBODY)
    sign_in(Browser(app), "dana")
    away = make(*EVERYBODY, port=free_port())
    clock.move(hours=1)
    assert recheck(away) == 0
    assert live_sessions(app) == 1


def test_an_operator_s_decision_stays(
    make: Callable[..., Flask], slapd: OpenLdap, clock: Clock
) -> None:
    """The directory lets in again only whom it has shut out itself."""
    app = make(*EVERYBODY)
    dn = slapd.person("alex")
    sign_in(Browser(app), "alex")
    slapd.change(f"dn: {dn}\nchangetype: modify\nadd: shadowExpire\nshadowExpire: 10\n")
    clock.move(hours=1)
    recheck(app)
    with app.app_context():
        accounts.disable(audit.SYSTEM, db.session.scalars(select(User)).one())
        db.session.commit()
    slapd.change(f"dn: {dn}\nchangetype: modify\ndelete: shadowExpire\n")
    assert "disabled" in sign_in(Browser(app), "alex").html
    assert live_sessions(app) == 0


def test_doctor(make: Callable[..., Flask], slapd: OpenLdap) -> None:
    def seen(app: Flask) -> tuple[str, str]:
        with app.app_context():
            (finding,) = others.directories()
        return str(finding.status), finding.seen

    assert seen(make()) == ("ok", f"corp: 127.0.0.1:{slapd.port} answers; certificate for 29 days")
    assert seen(make('user_filter = "(cn=nobody)"'))[1].endswith("nobody is found")
    status, text = seen(make(port=free_port()))
    assert status == "wrong"
    assert "refused" in text


def test_an_account_is_looked_up(make: Callable[..., Flask], slapd: OpenLdap) -> None:
    """In administration and by `flask doctor`; with the password of nobody."""
    slapd.person("gone", "shadowExpire: 10")
    slapd.person("first", mail="same@example.org")
    slapd.person("second", mail="same@example.org")
    app = make(f'groups = {{ "cn=staff,{GROUPS}" = "employees", "cn=other,{GROUPS}" = "x" }}')
    with app.app_context():
        (provider,) = context.upstreams()

    def looked_up(name: str) -> list[tuple[str, str]]:
        with app.app_context():
            findings = list(others.one_provider(provider, name))
        return [(each.status.value, each.seen) for each in findings if each.name == "account"]

    dana = [
        ("ok", f"dana: uid=dana,{directories.PEOPLE}"),
        ("ok", "dana: email: dana@example.org"),
        ("ok", "dana: groups here: employees"),
    ]
    assert looked_up("dana") == dana
    assert looked_up("") == looked_up("   ") == []
    assert looked_up("nobody") == [("wrong", "nobody: nobody has this name")]
    assert looked_up("*") == [("wrong", "*: nobody has this name")]
    assert looked_up("da\0na") == [("wrong", "da\0na: nobody has this name")]
    assert looked_up("same@example.org") == [
        ("wrong", "same@example.org: several people have this name")
    ]
    assert ("warning", "gone: the account has expired there") in looked_up("gone")
    assert ("warning", "first: other people have its email address") in looked_up("first")
    staff = sign_in_staff(app)
    page = staff.open(f"{administration.ADMIN}/provider?id=corp")
    assert "Test" in page.html
    page = staff.send(account=" dana ")
    assert f"uid=dana,{directories.PEOPLE}" in page.html
    assert "certificate for 29 days" in page.html
    assert ADMIN_PASSWORD not in page.html
    assert "too long" in staff.send(account="a" * 321).html
    away = make(port=free_port())
    with away.app_context():
        (provider,) = context.upstreams()
        findings = list(others.one_provider(provider, "dana"))
    assert [each.status.value for each in findings] == ["wrong", "wrong"]


def test_the_doctor_checks_one_provider(make: Callable[..., Flask]) -> None:
    app = make()
    settings = app.extensions["sso.settings"]
    environ = {
        "SSO_SECRET_KEY": settings.secret_key, "SSO_DATABASE_URL": settings.database_url,
        "SSO_BASE_URL": settings.base_url, "SSO_UPSTREAM_FILE": str(settings.upstream_file),
    }  # fmt: skip

    def doctor(*arguments: str) -> Result:
        return CliRunner().invoke(doctor_command, arguments, env=environ)

    done = doctor("--provider", "corp", "--account", "dana", "--json")
    assert done.exit_code == 0, done.output
    findings = json.loads(done.stdout)["findings"]
    assert [each["name"] for each in findings] == ["settings", "directories", "account", "account"]
    assert findings[2]["seen"] == f"dana: uid=dana,{directories.PEOPLE}"
    assert doctor("--provider", "corp", "--account", "nobody").exit_code == 1
    done = doctor("--provider", "other")
    assert (done.exit_code, "has no provider other (it has: corp)" in done.stderr) == (1, True)
    for arguments, problem in (
        (("--account", "dana"), "--account needs --provider"),
        (("--provider", "corp", "--client", "x"), "--provider goes without --client"),
        (("--provider", "corp", "--mcp", "x"), "--provider goes without --client"),
    ):
        done = doctor(*arguments)
        assert (done.exit_code, problem in done.stderr) == (2, True)


def test_passwords_of_a_directory_are_not_set_here(
    make: Callable[..., Flask], smtp: MailServer
) -> None:
    app = make(*EVERYBODY)
    browser = Browser(app)
    assert sign_in(browser, "dana").path == f"{BASE}/account"
    assert "Change your password there." in browser.page.html
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, smtp_url=smtp.url)
    browser.open(f"{BASE}/forgotten-password")
    browser.submit(email="dana@example.org")
    mails = {one["Subject"]: text_of(one) for one in Mailbox(app, smtp).read()}
    mail = mails["How to sign in to 127.0.0.1:5000"]
    assert "Change your password there." in mail
    assert "new-password" not in mail
    with app.app_context():
        user = db.session.scalars(select(User)).one()
        link = mail_links.make(mail_links.INVITE, user.email, user)[1]
        db.session.commit()
    assert browser.open(link).status == 403


def test_a_directory_is_connected_and_stays_so(make: Callable[..., Flask], slapd: OpenLdap) -> None:
    """Who has a password here may disconnect it; an account that lives by it may not."""
    slapd.person("lee")
    app = make(*EVERYBODY, f'groups = {{ "cn=staff,{GROUPS}" = "staff" }}')
    make_user(app)
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{BASE}/account/identities")
    page = browser.submit(action="connect", provider="corp")
    assert "link=1" in (page.action or "")
    page = browser.submit(user_name="lee", password=PASSWORD)
    assert page.parameters["done"] == "connected"
    with app.app_context():
        assert db.session.scalars(select(Identity)).one().email == "lee@example.org"
    assert browser.submit(action="remove").parameters["done"] == "removed"
    stranger = Browser(app)
    sign_in(stranger, "lee")
    page = stranger.open(f"{BASE}/account/identities")
    assert ("action", "remove") not in page.buttons
    with app.app_context():
        (mine,) = db.session.scalars(select(Identity)).all()
    token = stranger.open(f"{BASE}/account").fields["csrf_token"]
    sent = {"csrf_token": token, "action": "remove", "identity": str(mine.id)}
    page = stranger.open(f"{BASE}/account/identities", method="POST", data=sent)
    assert "You cannot remove it." in page.html


def test_name_and_email_follow_the_directory(
    make: Callable[..., Flask], slapd: OpenLdap, clock: Clock
) -> None:
    """Of accounts that live by it; an address that is another's here is never taken."""
    app = make(*EVERYBODY)
    dn = slapd.person("toni")

    def change(name: str, mail: str) -> None:
        lines = f"replace: displayName\ndisplayName: {name}\n-\nreplace: mail\nmail: {mail}\n"
        slapd.change(f"dn: {dn}\nchangetype: modify\n{lines}")

    def seen() -> tuple[str, str, bool]:
        with app.app_context():
            user = db.session.scalars(select(User).where(User.password_hash.is_(None))).one()
            return user.name, user.email, user.email_verified

    browser = Browser(app)
    sign_in(browser, "toni")
    page = browser.open(f"{BASE}/account")
    assert "Your name and email address come from" in page.html
    sent = {"csrf_token": page.fields["csrf_token"], "action": "change_name", "name": "Mine"}
    browser.open(f"{BASE}/account", method="POST", data=sent)
    assert seen()[0] == "Toni Doe"
    change("Toni  Newname", "toni.newname@example.org")
    sign_in(Browser(app), "toni")
    assert seen() == ("Toni Newname", "toni.newname@example.org", True)
    (changed,) = events(app, "user_changed")
    assert changed["by"] == "corp"
    assert changed["changes"]["name"]["after"] == "Toni Newname"
    make_user(app, "taken@example.org")
    change("Toni Again", "taken@example.org")
    clock.move(hours=1)
    assert recheck(app) == 1
    assert seen() == ("Toni Again", "toni.newname@example.org", True)
    slapd.person("twin3", mail="shared@example.org")
    change("Toni Again", "shared@example.org")
    sign_in(Browser(app), "toni")
    assert seen()[1] == "toni.newname@example.org"
    assert sign_in(Browser(app), "toni").path == f"{BASE}/account"
    # Who has a password here, and connected the directory, keeps what stands here.
    with app.app_context():
        user = db.session.scalars(select(User).where(User.password_hash.is_(None))).one()
        user.password_hash = "x"
        db.session.commit()
    change("Another", "another@example.org")
    sign_in(Browser(app), "toni")
    with app.app_context():
        assert db.session.scalar(select(User.id).where(User.name == "Another")) is None


def test_the_last_administrator_is_not_disabled_by_a_directory(
    make: Callable[..., Flask], slapd: OpenLdap, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would be left to administer; what is open ends all the same."""
    app = make(*EVERYBODY, f'groups = {{ "cn=admins,{GROUPS}" = "sso-administrators" }}')
    dn = slapd.person("max")
    slapd.group("admins", dn)
    sign_in(Browser(app), "max")
    slapd.change(f"dn: {dn}\nchangetype: modify\nadd: shadowExpire\nshadowExpire: 10\n")
    clock.move(hours=1)
    assert recheck(app) == 1
    assert live_sessions(app) == 0
    with app.app_context():
        user = db.session.scalars(select(User)).one()
        assert (user.disabled_at, user.groups) == (None, ["sso-administrators"])
    assert [one["reason"] for one in events(app, "session_ended")] == ["barred"]
    assert "is not disabled: This is the last administrator" in caplog.text
    assert "is disabled" in sign_in(Browser(app), "max").html  # it is not let in there
    make_user(app, "ada@example.com", groups=["sso-administrators"])
    with app.app_context():  # signed in by a passkey
        identity = db.session.scalars(select(Identity)).one()
        identities.disable_user(
            audit.SYSTEM, app.extensions["sso.upstreams"].find("corp"), identity, "expired"
        )
        db.session.commit()
        assert db.session.get(User, identity.user_id).disabled_at  # type: ignore[union-attr]


def test_what_is_counted(
    make: Callable[..., Flask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = counted(monkeypatch)
    app = make(*EVERYBODY)
    sign_in(Browser(app), "dana", "wrong")
    sign_in(Browser(app), "nobody")
    sign_in(Browser(app), "dana")
    sign_in(Browser(make(port=free_port())), "dana")
    assert read() == {("corp", "ok"): 1, ("corp", "refused"): 2, ("corp", "unavailable"): 1}
    clock.move(seconds=100)
    with app.app_context():
        ages = _directory_ages()
    assert isinstance(ages, dict)
    assert 100 <= ages[("corp",)] < 101


def test_attributes_follow_the_directory(
    make: Callable[..., Flask], slapd: OpenLdap, clock: Clock
) -> None:
    """At each sign-in and each check; all values of a list, and what is none is left out."""
    mapped = '"departmentNumber" = "department", "title" = "titles", "employeeNumber" = "level"'
    app = make(*EVERYBODY, f"attributes = {{ {mapped} }}")
    make_attribute(app, "department", writers=["upstream"])
    make_attribute(app, "titles", "list", writers=["upstream"])
    make_attribute(app, "level", "number", writers=["upstream"])
    dn = slapd.person(
        "atti", "departmentNumber: 4711", "title: Dr.", "title: Head", "employeeNumber: 7"
    )
    browser = Browser(app)
    sign_in(browser, "atti")

    def values() -> dict[str, object]:
        with app.app_context():
            user = db.session.scalars(select(User).where(User.email == "atti@example.org")).one()
            return dict(user.attributes)

    assert values() == {"department": "4711", "titles": ["Dr.", "Head"], "level": 7}
    change = "delete: title\n-\nreplace: employeeNumber\nemployeeNumber: seven\n"
    slapd.change(f"dn: {dn}\nchangetype: modify\n{change}")
    clock.move(hours=1)
    assert recheck(app) == 1
    assert values() == {"department": "4711", "level": 7}
    with app.app_context():
        provider = context.upstreams().find("corp")
        assert provider
        findings = [str(finding.seen) for finding in others.one_provider(provider, "atti")]
    assert any("attributes here: department=4711" in text for text in findings)
    assert any("'level' is no number" in text for text in findings)
