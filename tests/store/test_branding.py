"""The stored branding: one row, also if several processes write the first one at once."""

from concurrent.futures import ThreadPoolExecutor

from flask import Flask

from sso import audit, context
from sso.config import images
from sso.extensions import db
from sso.services import branding
from sso.store import branding as stored
from tests.support.logos import JPEG, PNG


def test_the_first_changes_at_once(app: Flask) -> None:
    def change(name: str) -> None:
        with app.app_context():
            branding.change(audit.Actor("olga"), {name: f"https://example.com/{name}"})
            db.session.commit()

    names = ("support_url", "privacy_url", "terms_url")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(change, names))
    with app.app_context():
        row = stored.find()
        assert row is not None
        assert row.fields == {name: f"https://example.com/{name}" for name in names}


def test_a_change_is_seen_and_nothing_else_is_read_again(app: Flask) -> None:
    with app.app_context():
        before = context.branding()
        context.forget_branding()
        assert context.branding() is before
        for data in (PNG, JPEG):
            logo = images.parse(data, 10_000)
            branding.change(audit.Actor("olga"), {"logo": logo})
            db.session.commit()
            context.forget_branding()
            assert context.branding().logo == logo
        branding.change(audit.Actor("olga"), {"name": "Acme"})
        db.session.commit()
        context.forget_branding()
        current = context.branding()
        assert current.name == "Acme"
        assert current.logo == logo


def test_what_is_rolled_back_is_forgotten(app: Flask) -> None:
    with app.app_context():
        branding.change(audit.Actor("olga"), {"name": "Acme"})
        db.session.rollback()
        context.forget_branding()
        assert context.branding().name is None


def test_fields_of_a_newer_version_stay_unknown(app: Flask) -> None:
    with app.app_context():
        row = stored.lock()
        stored.write(row, {"name": "Acme", "motto": "x"}, None)
        db.session.commit()
        context.forget_branding()
        assert context.branding().name == "Acme"
