"""New people: with a password, and imported from CSV, where what is confirmed was shown."""

import re
from io import BytesIO

import pytest
from flask import Flask

from sso import audit
from sso.endpoints.admin import people_import
from sso.extensions import db
from sso.models import Mail, User
from sso.services import accounts
from sso.store import users
from tests.support.actors import Browser
from tests.support.administration import ADMIN, ADMINS, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_user

pytestmark = pytest.mark.slow

IMPORT = f"{ADMIN}/people/import"
ROWS = """email,name,groups,email_verified
Erin@Example.com,Erin <b>E</b>,"staff,board",true
dana@example.com,Dana,,
finn@example.com,Finn,sso-administrators,
not an address,Gina,,
"""
LONG = "a long enough password"


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def find(app: Flask, email: str) -> User | None:
    with app.app_context():
        return users.find_by_email(email)


def test_a_person_with_a_password(app: Flask, ada: StaffBrowser) -> None:
    ada.open(f"{ADMIN}/person/new")
    values = {"email": "erin@example.com", "name": "Erin", "groups": "staff"}
    for password in ("short", "", "x" * 5000):
        page = ada.send(**values, password=password)
        assert "Nothing was changed." in page.html, password
        assert not password or f'"{password}"' not in page.html
    assert "The account was created." in ada.send(**values, password=LONG).html
    erin = find(app, "erin@example.com")
    assert erin
    assert (erin.groups, erin.email_verified) == (["staff"], False)
    assert "/account" in Browser(app).sign_in("erin@example.com", LONG).url
    ada.open(f"{ADMIN}/person/new")
    assert "Nothing was changed." in ada.send(**values, password=LONG).html  # she exists
    (event,) = [each for each in events(app, "user_created") if each["user"] == str(erin.id)]
    assert event["operator"] == "ada@example.com"


def test_what_is_shown_is_imported(app: Flask, ada: StaffBrowser) -> None:
    dana = make_user(app, "dana@example.com", name="Dana Demo")
    ada.open(IMPORT)
    page = ada.send(csv=ROWS)
    assert "To be created: 2. Left out: 2." in page.html
    assert "Erin &lt;b&gt;E&lt;/b&gt;" in page.html
    assert "the email address is not valid" in page.html
    assert find(app, "erin@example.com") is None
    page = ada.send()
    assert "The people were imported." in page.html
    erin, finn = find(app, "erin@example.com"), find(app, "finn@example.com")
    assert erin
    assert finn
    assert erin.name == "Erin <b>E</b>"
    assert (erin.groups, erin.email_verified) == (["staff", "board"], True)
    assert ADMINS not in finn.groups
    again = find(app, dana.email)
    assert again
    assert again.name == "Dana Demo"
    with app.app_context():
        assert db.session.query(Mail).filter_by(address="erin@example.com").count() == 0
    told = events(app, "user_imported")
    assert {(each["operator"], each["by"]) for each in told} == {("ada@example.com", "import")}
    assert len(told) == 2
    ada.open(IMPORT)
    page = ada.send(csv=ROWS)
    assert "To be created: 0. Left out: 4." in page.html
    assert "The people were imported." not in ada.send().html


def test_a_plan_that_has_changed_is_shown_again(app: Flask, ada: StaffBrowser) -> None:
    ada.open(IMPORT)
    ada.send(csv=ROWS)
    with app.app_context():
        accounts.create(audit.SYSTEM, email="erin@example.com", name="Other", email_verified=True)
        db.session.commit()
    page = ada.send()
    assert "This is not what was shown before." in page.html
    assert find(app, "finn@example.com") is None
    page = ada.send(csv=ROWS + "gil@example.com,Gil,,\n")
    assert "This is not what was shown before." in page.html
    assert find(app, "gil@example.com") is None
    assert "The people were imported." in ada.send().html
    assert find(app, "gil@example.com")
    ada.open(IMPORT)
    page = ada.send(csv=ROWS.replace("Erin@Example", "hal@example"), plan="0" * 64)
    assert "This is not what was shown before." in page.html
    assert find(app, "hal@example.com") is None


@pytest.mark.parametrize(
    ("csv", "reason"),
    [
        ("", "Paste the rows"),
        ("email\n", "There are no rows"),
        ("name\nErin\n", "one of them is email"),
        ("email,name,Email\ne@example.com,E,f@example.com\n", "each column is named once"),
        ("email,shoe size\ne@example.com,1\n", "there is no column"),
        ('email,name\n"e@example.com', "line"),
        ("\x00", 'class="alert"'),
        ("email\n" + "e@example.com\n" * 8000, "too long"),
    ],
)
def test_rows_that_are_none(app: Flask, ada: StaffBrowser, csv: str, reason: str) -> None:
    ada.open(IMPORT)
    page = ada.send(csv=csv)
    assert page.status == 200
    assert reason in page.html
    assert "/tmp" not in page.html
    assert "Preview" in page.html


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_rows_from_a_file(app: Flask, ada: StaffBrowser, mark: bytes) -> None:
    ada.open(IMPORT)
    file = (BytesIO(mark + ROWS.replace("Erin <b>", "Zo\u00eb <b>").encode()), "people.csv")
    page = ada.send(file=file, csv="email\nother@example.com\n")
    assert "To be created: 3. Left out: 1." in page.html
    assert "The people were imported." in ada.send().html
    erin = find(app, "erin@example.com")
    assert erin
    assert erin.name == "Zo\u00eb <b>E</b>"
    assert find(app, "other@example.com") is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("email,name\na@example.com,Zo\u00eb\n".encode("latin-1"), "not text in UTF-8"),
        (b"\xff\xfeemail", "not text in UTF-8"),
        (b"email\n" + b"e@example.com\n" * 8000, "too long"),
        (b"email\n", "There are no rows"),
        (b"", "Paste the rows"),
    ],
)
def test_files_that_are_none(app: Flask, ada: StaffBrowser, data: bytes, reason: str) -> None:
    ada.open(IMPORT)
    page = ada.send(file=(BytesIO(data), "people.csv"), csv="")
    assert page.status == 200
    assert reason in page.html
    assert page.html.count("e@example.com") < 10


def test_the_preview_names_no_option_of_a_command(app: Flask, ada: StaffBrowser) -> None:
    ada.open(IMPORT)
    page = ada.send(csv=ROWS)
    assert "a group that administers this server" in page.html
    assert "--allow" not in page.html


def test_bounds_and_passwords(app: Flask, ada: StaffBrowser) -> None:
    ada.open(IMPORT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people_import, "MOST", 2)
        page = ada.send(csv="email\n" + "".join(f"p{n}@example.com\n" for n in range(3)))
        assert "At most 2 people at once." in re.sub("<[^>]*>", "", page.html)
    ada.open(IMPORT)
    for column, stored in (
        ("password_hash", "$2b$04$abcdefghijklmnopqrstuv"),
        ("password_hash", "hunter2"),
        ("Initial Password", "hunter2"),  # no column that there is
    ):
        page = ada.send(csv=f"email,{column}\ne@example.com,{stored}\n")
        assert "Paste the rows without passwords." in page.html
        assert stored not in page.html
        assert find(app, "e@example.com") is None


def test_values_that_nobody_should_have(app: Flask, ada: StaffBrowser) -> None:
    ada.open(IMPORT)
    bad = f"email,name,groups\na@example.com,N\x00ul,\nb@example.com,{'x' * 90_000},\n"
    page = ada.send(csv=bad)
    assert "To be created: 0. Left out: 2." in page.html
    ada.send()
    assert find(app, "a@example.com") is None
    assert find(app, "b@example.com") is None
    page = ada.open(IMPORT, "POST", data={"csv": ROWS})
    assert "To be created" not in page.html


def test_the_helpdesk_sees_no_mails_and_imports_nobody(app: Flask, ada: StaffBrowser) -> None:
    dana = make_user(app)
    with app.app_context():
        db.session.add(Mail(kind="reset", address=dana.email, last_fault="SMTPDataError 451"))
        db.session.commit()
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    html = ada.open(f"{ADMIN}/person?id={dana.id}").html
    assert "Set a new password" in html
    assert "SMTPDataError 451" in html
    html = hal.open(f"{ADMIN}/person?id={dana.id}").html
    assert "SMTPDataError 451" not in html
    assert "/audit" not in html
    assert "/emails" not in html
    for path in ("people/import", "person/new"):
        assert hal.open(f"{ADMIN}/{path}").status == 404
        assert hal.open(f"{ADMIN}/{path}", "POST", data={}).status == 404
