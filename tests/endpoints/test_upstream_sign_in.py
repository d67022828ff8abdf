"""What follows when an upstream provider has said who somebody is, whatever its protocol."""

from dataclasses import replace
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select
from werkzeug.wrappers import Response

from sso import audit
from sso.config.upstream.file import Upstreams
from sso.config.upstream.oidc import OidcProvider
from sso.endpoints import upstream, upstream_sign_in
from sso.endpoints.upstream_sign_in import Attempt
from sso.extensions import db
from sso.mfa import totp
from sso.models import Identity, TotpSecret, User
from sso.services import identities
from sso.upstream.identity import UpstreamIdentity
from tests.conftest import Clock
from tests.support.actors import BASE, Browser, Page, RelyingParty, claims_of
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox
from tests.support.second_factors import code_of, is_signed_in, scan

CORP = OidcProvider(
    id="corp", type="oidc", name="Corp", issuer="https://corp.example", client_id="us",
    client_secret="x", trust_email=True, domains=("example.com",),
)  # fmt: skip
DANA = UpstreamIdentity(CORP.issuer, "1", "dana@example.com", email_verified=True, name="Dana D")


class Corp:
    """A provider that says of everybody what the test wants."""

    def __init__(self, app: Flask, browser: Browser) -> None:
        self.app, self.browser, self.says = app, browser, DANA
        self.attempts: list[Attempt] = []
        self.configure(CORP)

    def configure(self, *providers: OidcProvider) -> None:
        self.app.extensions["sso.upstreams"] = Upstreams(providers)

    def handle(self, attempt: Attempt) -> Response:
        self.attempts.append(attempt)
        return upstream_sign_in.finish(attempt, self.says)

    def sign_in(self, **fields: str) -> Page:
        """Press the button on the sign-in page."""
        if "upstream" not in dict(self.browser.page.buttons):
            self.browser.open(f"{BASE}/sign-in")
        return self.browser.submit(upstream="corp", **fields)

    def owner(self) -> str | None:
        """Whose the identity is."""
        with self.app.app_context():
            linked = select(User.email).join(Identity, Identity.user_id == User.id)
            return db.session.scalar(linked)


@pytest.fixture
def corp(app: Flask, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Corp:
    made = Corp(app, browser)
    monkeypatch.setattr(upstream, "HANDLERS", {OidcProvider: made.handle})
    return made


def test_the_whole_way_of_an_application(
    corp: Corp, browser: Browser, client: RelyingParty, user: User, mailbox: Mailbox
) -> None:
    page = browser.authorize(client)
    assert ("upstream", "corp") in page.buttons
    assert "Continue with" in page.html
    page = corp.sign_in(remember="1")
    assert corp.attempts[0].remember
    answer = browser.allow().code
    token = client.exchange(answer).get_json()
    assert claims_of(token["id_token"])["amr"] == ["fed"]
    assert corp.owner() == "dana@example.com"
    # By its subject from now on, whatever its email is.
    corp.says = replace(DANA, email="else@example.com", email_verified=False)
    other = Browser(corp.app)
    corp.browser = other
    assert corp.sign_in().path == f"{BASE}/account"
    assert "Dana Demo" in other.page.html


def test_an_email_of_its_domains_leads_there(corp: Corp, browser: Browser, user: User) -> None:
    browser.open(f"{BASE}/sign-in")
    assert browser.submit(email="dana@example.com", password="").path == f"{BASE}/account"
    assert corp.attempts[0].hint == "dana@example.com"
    other = Browser(corp.app)
    other.open(f"{BASE}/sign-in?local=1")
    assert other.submit(email="dana@example.com", password="correct horse battery").path == (
        f"{BASE}/account"
    )
    assert len(corp.attempts) == 1


def test_somebody_unknown_proves_the_account_first(
    corp: Corp, browser: Browser, client: RelyingParty, user: User
) -> None:
    make_user(corp.app, "erin@example.com", email_verified=False)
    for provider, says in (
        (replace(CORP, trust_email=False), DANA),
        (replace(CORP, domains=("other.example",)), DANA),
        (CORP, replace(DANA, email="nobody@example.com")),
        (CORP, replace(DANA, email="erin@example.com")),  # nobody has confirmed it here
        (CORP, replace(DANA, email_verified=False)),
    ):
        corp.configure(provider)
        corp.says = says
        browser.authorize(client)
        page = corp.sign_in()
        assert page.path == f"{BASE}/sign-in"
        assert "Sign in once with your account here" in page.html
        assert corp.owner() is None
    page = browser.sign_in()
    assert page.path == f"{BASE}/sign-in/connect"
    assert corp.owner() is None
    page = browser.submit(decision="connect")
    assert corp.owner() == "dana@example.com"
    assert ("decision", "allow") in page.buttons  # back on the application's way


def test_it_is_not_connected_unless_the_person_agrees(
    corp: Corp, browser: Browser, user: User
) -> None:
    corp.says = replace(DANA, email_verified=False)
    corp.sign_in()
    browser.sign_in()
    assert browser.submit(decision="skip").path == f"{BASE}/account"
    assert corp.owner() is None
    assert browser.open(f"{BASE}/sign-in/connect").path == f"{BASE}/account"


@pytest.mark.parametrize(("seconds", "waits"), [(1800, True), (1801, False)])
def test_it_does_not_wait_for_ever(
    corp: Corp, browser: Browser, user: User, clock: Clock, seconds: int, waits: bool
) -> None:
    """Who signs in on this browser much later may be somebody else."""
    clock.stand_still()
    corp.says = replace(DANA, email_verified=False)
    corp.sign_in()
    clock.move(seconds=seconds)
    browser.open(f"{BASE}/sign-in?local=1")
    assert (("decision", "connect") in browser.sign_in().buttons) == waits
    assert (browser.page.path == f"{BASE}/account") != waits


def test_a_first_sign_in_makes_an_account(corp: Corp, browser: Browser) -> None:
    corp.configure(replace(CORP, sign_up=True))
    assert corp.sign_in().path == f"{BASE}/account"
    assert "Dana D" in browser.page.html
    assert corp.owner() == "dana@example.com"
    page = browser.open(f"{BASE}/account/identities")
    assert "dana@example.com" in page.html
    # Without a password it is the only way in.
    assert "only way to sign in" in browser.submit(action="remove").html
    assert corp.owner() == "dana@example.com"


def test_a_disabled_user_is_not_let_in(corp: Corp, browser: Browser) -> None:
    make_user(corp.app, disabled=True)
    assert "disabled" in corp.sign_in().html
    assert "sign_in_failed" not in browser.open(f"{BASE}/account").html


def test_the_second_factor_of_the_account_is_asked_for(
    corp: Corp, browser: Browser, user: User, clock: Clock
) -> None:
    with corp.app.app_context():
        secret = totp.new_secret()
        assert totp.enrol(user.id, secret, code_of(secret))
        db.session.commit()
    assert corp.sign_in().path == f"{BASE}/second-factor"
    clock.move(minutes=1)
    assert browser.submit(code=code_of(secret)).path == f"{BASE}/account"
    # Unless the operator counts the provider's.
    corp.says = replace(DANA, has_two_factors=True)
    corp.browser = Browser(corp.app)
    assert corp.sign_in().path == f"{BASE}/account"


@pytest.mark.parametrize("is_last", [False, True])
def test_who_waits_for_it_does_not_outlive_a_bar_by_the_directory(
    corp: Corp, browser: Browser, clock: Clock, is_last: bool
) -> None:
    """The account has no password. The last administrator is not disabled, but signed out."""
    groups = ["sso-administrators"] if is_last else []
    user = make_user(corp.app, password=None, groups=groups)
    with corp.app.app_context():
        secret = totp.new_secret()
        assert totp.enrol(user.id, secret, code_of(secret))
        db.session.commit()
    clock.move(minutes=1)
    assert corp.sign_in().path == f"{BASE}/second-factor"
    with corp.app.app_context():
        identity = db.session.scalars(select(Identity)).one()
        identities.disable_user(audit.SYSTEM, CORP, identity, "disabled")
        db.session.commit()
        assert db.session.get_one(User, user.id).is_disabled is not is_last
        identities.enable_user(audit.SYSTEM, CORP, DANA)
        db.session.commit()
        assert not db.session.get_one(User, user.id).is_disabled
    assert browser.submit(code=code_of(secret)).path == f"{BASE}/sign-in"
    assert not is_signed_in(browser)


@pytest.mark.parametrize("has_two", [False, True])
def test_two_factors_there_confirm_the_first_one_here(
    corp: Corp, browser: Browser, user: User, mailbox: Mailbox, has_two: bool
) -> None:
    """After a password alone there, a code by mail has to confirm it."""
    corp.says = replace(DANA, has_two_factors=has_two)
    corp.sign_in()
    page = browser.open(f"{BASE}/account/factors")
    assert ("confirm your email address" in page.html) is not has_two
    page = browser.open(f"{BASE}/account/factors/totp")
    if not has_two:
        assert page.path == f"{BASE}/account/factors/code"
        return
    assert browser.submit(code=code_of(scan(page))).status == 200
    with corp.app.app_context():
        assert db.session.scalar(select(TotpSecret.user_id)) == user.id


def test_a_missing_second_factor_says_nothing_of_the_password(
    corp: Corp, browser: Browser, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    """The mail about a password that somebody knows would be wrong: the provider let them in."""
    with corp.app.app_context():
        secret = totp.new_secret()
        assert totp.enrol(user.id, secret, code_of(secret))
        db.session.commit()
    corp.sign_in()
    assert mailbox.subjects() == [(user.email, "A new way to sign in was added to your account")]
    assert 'role="alert"' in browser.submit(code="000000").html
    clock.move(minutes=11)
    assert mailbox.subjects() == []
    by_password = Browser(corp.app)
    by_password.open(f"{BASE}/sign-in?local=1")
    by_password.submit(email=user.email, password=PASSWORD)
    clock.move(minutes=11)
    (subject,) = mailbox.subjects()
    assert "entered your password" in subject[1]


def test_an_identity_removed_meanwhile_does_not_sign_in(
    corp: Corp, browser: Browser, user: User
) -> None:
    with corp.app.app_context():
        secret = totp.new_secret()
        assert totp.enrol(user.id, secret, code_of(secret))
        db.session.commit()
    corp.sign_in()
    with corp.app.app_context():
        db.session.query(Identity).delete()
        db.session.commit()
    assert browser.submit(code=code_of(secret)).path == f"{BASE}/sign-in"


def test_connect_and_remove_on_the_account_page(
    corp: Corp, browser: Browser, user: User, clock: Clock
) -> None:
    corp.says = replace(DANA, email="private@mail.example", email_verified=False)
    browser.open(f"{BASE}/sign-in?local=1")
    browser.sign_in()
    assert "Connected accounts" in browser.open(f"{BASE}/account").html
    browser.open(f"{BASE}/account/identities")
    page = browser.submit(action="connect")
    assert "private@mail.example" in page.html
    assert corp.owner() == "dana@example.com"
    for unknown in ("x", "00000000-0000-0000-0000-000000000001"):
        page = browser.submit(action="remove", identity=unknown)
        assert page.status == 200
        assert corp.owner() == "dana@example.com"
        browser.open(f"{BASE}/account/identities")
    clock.move(minutes=10)
    assert browser.submit(action="remove").path == f"{BASE}/sign-in"  # not fresh
    assert browser.submit(password="correct horse battery").path == f"{BASE}/account/identities"
    assert "It was removed." in browser.submit(action="remove").html
    assert corp.owner() is None


def test_removing_it_ends_what_it_began_but_for_this_session(
    corp: Corp, app: Flask, browser: Browser, user: User
) -> None:
    """The person who removes it may have come that way; somebody else may have, too."""
    corp.sign_in()
    browser.open(f"{BASE}/sign-in")
    elsewhere, by_password = Browser(app), Browser(app)
    by_password.open(f"{BASE}/sign-in?local=1")
    by_password.sign_in()
    elsewhere.open(f"{BASE}/sign-in")
    elsewhere.submit(upstream="corp")
    everybody = (browser, elsewhere, by_password)
    assert all(is_signed_in(one) for one in everybody)
    browser.open(f"{BASE}/account/identities")
    assert "It was removed." in browser.submit(action="remove").html
    assert [is_signed_in(one) for one in everybody] == [True, False, True]


def test_another_persons_identity_stays_theirs(corp: Corp, browser: Browser, user: User) -> None:
    corp.sign_in()
    make_user(corp.app, "erin@example.com")
    other = Browser(corp.app)
    other.open(f"{BASE}/sign-in?local=1")
    other.sign_in("erin@example.com")
    other.open(f"{BASE}/account/identities")
    page = other.submit(action="connect")
    assert "already connected to another account" in page.html
    assert corp.owner() == "dana@example.com"


def test_a_fresh_sign_in_has_to_be_fresh_there(
    corp: Corp, browser: Browser, client: RelyingParty, user: User, clock: Clock
) -> None:
    corp.says = replace(DANA, auth_time=clock.now() - timedelta(hours=2))
    browser.authorize(client, max_age="60")
    corp.sign_in()
    page = browser.authorize(client, max_age="60")
    assert page.path == f"{BASE}/sign-in"  # two hours old
    assert "did not ask you to sign in again" in corp.sign_in().html
    assert corp.attempts[-1].again
    browser.authorize(client, max_age="60")
    corp.says = replace(DANA, auth_time=clock.now())
    corp.sign_in()
    assert ("decision", "allow") in browser.page.buttons


def test_groups_follow_the_mapping(corp: Corp, browser: Browser) -> None:
    make_user(corp.app, groups=["staff", "own"])
    corp.configure(replace(CORP, groups={"Engineering": "dev", "All": "staff"}))
    corp.says = replace(DANA, groups=frozenset({"Engineering", "Else"}))
    corp.sign_in()
    with corp.app.app_context():
        assert db.session.query(User.groups).scalar() == ["own", "dev"]
    corp.says = replace(DANA, groups=None)
    corp.browser = Browser(corp.app)
    corp.sign_in()
    with corp.app.app_context():
        assert db.session.query(User.groups).scalar() == ["own", "dev"]


def test_an_address_that_is_not_proven_is_proven_by_mail(
    corp: Corp, browser: Browser, mailbox: Mailbox, client: RelyingParty
) -> None:
    assert browser.open(f"{BASE}/sign-up").status == 404
    corp.configure(replace(CORP, sign_up=True))
    corp.says = replace(DANA, email_verified=False)
    browser.authorize(client)
    corp.sign_in()
    assert "Create one" in browser.page.html
    browser.open(f"{BASE}/sign-up")
    assert browser.page.fields["email"] == "dana@example.com"
    assert "For email addresses at" not in browser.page.html  # the setting is off
    refused = browser.submit(email="dana@other.example").html
    assert "You cannot sign up with this address." in refused
    assert "listed above" not in refused
    browser.submit(email="dana@example.com")
    browser.open(mailbox.link("dana@example.com"))
    page = browser.submit(name="Dana", new_password="correct horse battery")
    assert page.path == f"{BASE}/sign-in/connect"
    assert corp.owner() is None
    browser.submit(decision="connect")
    assert corp.owner() == "dana@example.com"
