"""The outbox of mails and their single-use secrets, on every database and at the same instant."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from time import sleep
from uuid import UUID

from flask import Flask

from sso import clock
from sso.extensions import db
from sso.models import Mail, User
from sso.services import mail_links
from sso.store import mail_tokens, outbox
from tests.support.factories import make_user

AT_ONCE = 8


def test_a_secret_is_used_once(app: Flask) -> None:
    user = make_user(app)
    with app.app_context():
        found = db.session.get_one(User, user.id)
        _, link = mail_links.make(mail_links.RESET, found.email, found)
        db.session.commit()
    secret = link.partition("token=")[2]

    def use(_: int) -> bool:
        with app.app_context():
            token, _user = mail_links.find(secret, mail_links.RESET) or (None, None)
            won = token is not None and mail_tokens.use(token)
            db.session.commit()
            return won

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(use, range(AT_ONCE))) == 1


def test_each_mail_is_taken_by_one_worker(app: Flask) -> None:
    with app.app_context():
        for n in range(20):
            assert outbox.add_mail(Mail(kind="reset", address=f"{n}@example.com"))
        db.session.commit()

    def claim(_: int) -> list[UUID]:
        with app.app_context():
            found = outbox.MAILS.claim(5, until=clock.now() + timedelta(minutes=1))
            db.session.commit()
            return [mail.id for mail in found]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        taken = [one for batch in pool.map(claim, range(AT_ONCE)) for one in batch]
    assert len(taken) == len(set(taken)) <= 20
    assert len(taken) + len(claim(0)) + len(claim(0)) + len(claim(0)) + len(claim(0)) == 20


def test_a_rolled_back_cause_owes_nothing(app: Flask) -> None:
    with app.app_context():
        outbox.add_mail(Mail(kind="reset", address="a@example.com"))
        db.session.rollback()
        assert outbox.MAILS.waiting() == (0, None)


def test_no_more_mails_are_owed_at_once_than_one_after_the_other(app: Flask) -> None:
    """As by as many requests at the same instant."""
    begin = Barrier(AT_ONCE)

    def owe(_: int) -> bool:
        with app.app_context():
            begin.wait(20)
            owed = outbox.add_mail(Mail(kind="reset", address="dana@example.com"))
            sleep(0.05)  # what else such a request writes
            db.session.commit()
            return owed

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(owe, range(AT_ONCE))) == outbox.MOST_MAILS_AN_HOUR
    with app.app_context():
        assert outbox.MAILS.waiting()[0] == outbox.MOST_MAILS_AN_HOUR
        assert outbox.add_mail(Mail(kind="reset", address="erin@example.com"))
