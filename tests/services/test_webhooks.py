"""Webhooks: how many there may be, and what a change leaves alone."""

import pytest
from flask import Flask

from sso import audit, clock
from sso.extensions import db
from sso.models import Webhook
from sso.services import webhooks
from sso.services.changes import ListEdit
from sso.services.checks import Invalid

OLGA = audit.Actor("olga")
URL = "https://hooks.example/sso"


def create() -> Webhook:
    return webhooks.create(OLGA, URL, ["signed_in"])[0]


def test_there_are_only_so_many(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST", 2)
    with app.app_context():
        first, _ = create(), create()
        with pytest.raises(Invalid, match="2 webhooks already"):
            create()
        webhooks.delete(OLGA, first.id)
        assert create()


@pytest.mark.parametrize(
    "url", ["http://hooks.example/", "https://169.254.169.254/", f"{URL}#x", "hooks.example"]
)
def test_a_change_to_a_url_that_is_refused(app: Flask, url: str) -> None:
    """As for a new one; other changes do not look at the URL that is there."""
    with app.app_context():
        webhook = create()
        with pytest.raises(Invalid, match="is refused"):
            webhooks.change(OLGA, webhook.id, url=url)
        webhook.url = url
        webhooks.change(OLGA, webhook.id, events=ListEdit(added=("user_deleted",)))


@pytest.mark.parametrize(
    ("url", "is_new"), [(None, False), (URL, False), (f"{URL}/2", True)], ids=["", "same", "new"]
)
def test_only_another_receiver_has_not_failed_yet(
    app: Flask, url: str | None, is_new: bool
) -> None:
    with app.app_context():
        webhook = create()
        webhook.failing_since, webhook.failures = clock.now(), 7
        webhook.retry_at = clock.now()
        db.session.flush()
        webhooks.change(OLGA, webhook.id, url=url, events=ListEdit(added=("user_deleted",)))
        assert webhook.failures == (0 if is_new else 7)
        assert (webhook.failing_since is None) == is_new
        assert (webhook.retry_at is None) == is_new
