"""The attacker has a link from a mail: an old one, a used one, their own, or a guess.

It ends at a secret that is stored as a digest, works once, for one purpose, one user and one
address, and dies when the user's address or password changes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask

from sso import audit, clock
from sso.config.upstream.file import Upstreams
from sso.config.upstream.ldap import LdapProvider
from sso.extensions import db
from sso.models import Identity, User
from sso.services import credentials, mail_links
from sso.store import users
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox

NEW = "another long password"
DIRECTORY = LdapProvider(
    id="corp", type="ldap", name="Corp", directory="openldap", servers=(), base="dc=x"
)
PAGES = ("new-password", "verify-email", "complete-sign-up")


@pytest.fixture
def link(app: Flask, user: User, mailbox: Mailbox) -> str:
    """A fresh link to set a new password."""
    return reset_link(app, user.email, mailbox)


def reset_link(app: Flask, email: str, mailbox: Mailbox) -> str:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=email)
    return mailbox.link(email)


def set_password(app: Flask, link: str, password: str, **more: str) -> int:
    browser = Browser(app)
    if browser.open(link).status == 200:
        browser.submit(new_password=password, **more)
    return browser.page.status


def password_is(app: Flask, password: str, email: str = "dana@example.com") -> bool:
    return Browser(app).sign_in(email, password).path.endswith("/account")


def test_it_works_once(app: Flask, link: str) -> None:
    thief = Browser(app)
    thief.open(link)  # open already, when the owner uses it
    assert set_password(app, link, NEW) == 200
    assert set_password(app, link, "the thief's password") == 410
    assert thief.submit(new_password="the thief's password").status == 410
    assert password_is(app, NEW)


def test_at_the_same_instant_one_wins(app: Flask, link: str) -> None:
    browsers = [Browser(app) for _ in range(4)]
    for browser in browsers:
        browser.open(link)
    with ThreadPoolExecutor(4) as pool:
        pages = list(pool.map(lambda one: one[1].submit(new_password=f"{NEW} {one[0]}"),
                              enumerate(browsers)))  # fmt: skip
    assert sorted(page.status for page in pages) == [200, 410, 410, 410]
    winner = next(n for n, page in enumerate(pages) if page.status == 200)
    assert password_is(app, f"{NEW} {winner}")


@pytest.mark.parametrize("change", ["password", "email", "disabled"])
def test_another_link_of_the_same_instant_does_nothing(app: Flask, user: User, change: str) -> None:
    """It is looked up, then the first link is used, then it is used itself."""
    with app.app_context():
        owner = db.session.get_one(User, user.id)
        secrets = [mail_links.make(mail_links.RESET, user.email, owner)[1] for _ in range(2)]
        secrets = [link.partition("token=")[2] for link in secrets]
        db.session.commit()
        looked_up = mail_links.find(secrets[1], mail_links.RESET)
        assert looked_up
        db.session.commit()
        with app.app_context():
            used = mail_links.redeem(secrets[0], mail_links.RESET)
            assert used
            assert used[1]
            if change == "password":
                credentials.reset_password(audit.USER, used[1], "hash", mail_links.RESET)
            elif change == "email":
                used[1].email = "new@example.com"
            else:
                used[1].disabled_at = clock.now()
            db.session.commit()
        assert not mail_links.use(*looked_up)


@pytest.mark.parametrize("purpose", [mail_links.VERIFY, mail_links.SIGN_UP, mail_links.INVITE])
def test_a_link_that_two_have_looked_up_works_once(app: Flask, user: User, purpose: str) -> None:
    """Even where its first use changes nothing that it is bound to."""
    with app.app_context():
        owner = None if purpose == mail_links.SIGN_UP else db.session.get_one(User, user.id)
        secret = mail_links.make(purpose, user.email, owner)[1].partition("token=")[2]
        db.session.commit()
        first, second = (mail_links.find(secret, purpose) for _ in range(2))
        assert first
        assert second
        assert mail_links.use(*first)
        assert not mail_links.use(*second)
        db.session.commit()
        assert mail_links.redeem(secret, purpose) is None


def test_nobody_resets_another_user(app: Flask, link: str) -> None:
    make_user(app, "erin@example.com", name="Erin")
    more = {"email": "erin@example.com", "user": "erin@example.com", "token": "x"}
    set_password(app, link + "&email=erin@example.com&user=erin", NEW, **more)
    assert password_is(app, PASSWORD, "erin@example.com")
    assert password_is(app, NEW)


def test_another_link_of_mine_is_no_password_link(app: Flask, user: User, mailbox: Mailbox) -> None:
    """A link that proves an address opens no other door."""
    make_user(app, "mallory@example.com", email_verified=False)
    verify = mailbox.link("mallory@example.com").partition("token=")[2]
    reset = reset_link(app, user.email, mailbox).partition("token=")[2]
    for secret, right in ((verify, "verify-email"), (reset, "new-password")):
        for page in PAGES:
            opened = Browser(app).open(f"{ORIGIN}{BASE}/{page}?token={secret}")
            assert (opened.status == 200) == (page == right)


@pytest.mark.parametrize("token", ["", "x", "sso_ml_", "sso_ml_" + "A" * 43, "é\0'", "x" * 5000])
@pytest.mark.parametrize("page", PAGES)
def test_guesses(app: Flask, link: str, token: str, page: str) -> None:
    answer = app.test_client().get(f"{BASE}/{page}", query_string={"token": token})
    assert answer.status_code == 410


def change_address(app: Flask, user: User) -> None:
    arguments = ["user", "update", user.email, "--email", "new@example.com", "--email-verified"]
    app.test_cli_runner().invoke(args=arguments)


def change_password(app: Flask, user: User) -> None:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/account")
    browser.submit(action="change_password", old_password=PASSWORD, new_password=NEW + "!")


def disable(app: Flask, user: User) -> None:
    app.test_cli_runner().invoke(args=["user", "disable", user.email])


def delete(app: Flask, user: User) -> None:
    app.test_cli_runner().invoke(args=["user", "delete", user.email, "--yes"])


@pytest.mark.parametrize("change", [change_address, change_password, disable, delete])
def test_it_dies_with_what_it_was_made_for(
    app: Flask, user: User, link: str, change: Callable[[Flask, User], None]
) -> None:
    waiting = Browser(app)
    waiting.open(link)
    change(app, user)
    assert set_password(app, link, NEW) == 410
    assert waiting.submit(new_password=NEW).status == 410
    assert not password_is(app, NEW)


def test_a_new_password_kills_every_other_link(
    app: Flask, user: User, link: str, mailbox: Mailbox
) -> None:
    other = reset_link(app, user.email, mailbox)
    set_password(app, other, NEW)
    assert set_password(app, link, "the thief's password") == 410


def test_looking_changes_nothing(app: Flask, user: User, link: str, mailbox: Mailbox) -> None:
    """Mail scanners open every link, with GET and HEAD; some post what they find, too."""
    make_user(app, "erin@example.com", name="Erin", email_verified=False)
    verify = mailbox.link("erin@example.com")
    scanner = app.test_client()
    for address in (link, verify):
        for method in ("GET", "HEAD", "GET"):
            assert scanner.open(address, method=method, base_url=ORIGIN).status_code == 200
        blind = app.test_client().post(address, data={"new_password": NEW}, base_url=ORIGIN)
        assert blind.status_code in (303, 400)
    with app.app_context():
        erin = users.find_by_email("erin@example.com")
        assert erin
        assert erin.email_verified is False
        db.session.rollback()
    assert password_is(app, PASSWORD)
    assert set_password(app, link, NEW) == 200


def test_a_new_password_stops_a_change_of_address_whose_mail_waits(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    """A thief who knows the password asks for another address; the owner is quicker."""
    thief = Browser(app)
    thief.sign_in()
    thief.open(f"{ORIGIN}{BASE}/account/email")
    thief.submit(email="thief@evil.example", password=PASSWORD)
    arguments = ["user", "set-password", user.email, "--password-stdin"]
    app.test_cli_runner().invoke(args=arguments, input=NEW + "\n")
    assert {mail["X-Envelope"].split()[-1] for mail in mailbox.read()} == {user.email}


def test_an_invitation_whose_mail_waits_is_of_no_use_to_an_account_in_use(
    app: Flask, mailbox: Mailbox
) -> None:
    """Else it would be a link to set a password that lives for a week."""
    run = app.test_cli_runner().invoke
    run(args=["user", "invite", "--email", "ivy@example.com", "--name", "Ivy"])
    set_it = ["user", "set-password", "ivy@example.com", "--password-stdin"]
    assert run(args=set_it, input=NEW + "\n").exit_code == 0
    assert not [mail for mail in mailbox.read() if "invited" in mail["Subject"]]


def test_a_directory_that_is_connected_meanwhile_keeps_the_password(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the link is used up: somebody who leaves would keep a way in."""
    ivy = make_user(app, "ivy@example.com", password=None)
    app.extensions["sso.upstreams"] = Upstreams([DIRECTORY])
    with app.app_context():
        link = mail_links.make(mail_links.INVITE, ivy.email, ivy)[1]
        db.session.commit()
    browser, redeem = Browser(app), mail_links.redeem

    def connect(secret: str, *purposes: str) -> object:
        identity = Identity(user_id=ivy.id, provider="corp", issuer="ldap:corp", subject="1")
        db.session.add(identity)
        db.session.commit()
        return redeem(secret, *purposes)

    assert browser.open(link).status == 200
    monkeypatch.setattr(mail_links, "redeem", connect)
    page = browser.submit(new_password=NEW)
    assert (page.status, "Change your password there." in page.html) == (403, True)
    with app.app_context():
        kept = users.find(ivy.id)
        assert kept
        assert kept.password_hash is None


@pytest.mark.parametrize("had_password", [True, False])
def test_who_had_a_password_is_told_of_another_one_by_invitation(
    app: Flask, mailbox: Mailbox, had_password: bool
) -> None:
    user = make_user(app, password=PASSWORD if had_password else None)
    with app.app_context():
        found = db.session.get_one(User, user.id)
        _, link = mail_links.make(mail_links.INVITE, found.email, found)
        db.session.commit()
    assert set_password(app, link, NEW) == 200
    assert len(mailbox.read()) == (1 if had_password else 0)
