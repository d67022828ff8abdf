"""The audit chain under another secret key, on every database."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from sso import audit, create_app
from sso.audit import chain, writer
from sso.audit.chain import ChainBroken
from sso.audit.events import Event
from sso.extensions import db
from tests.audit.test_chain import execute, happen, names, verify
from tests.support.processes import SECRET_KEY

pytestmark = pytest.mark.slow


@pytest.fixture
def app(app_on_each: Flask) -> Flask:
    return app_on_each


NEW = "the secret key that comes after the one for tests"


@pytest.fixture
def others(app: Flask) -> Iterator[tuple[Flask, Flask]]:
    """Programs with the new key on the same database: one knows the first key, too."""
    url = app.config["SQLALCHEMY_DATABASE_URI"]
    more: tuple[dict[str, str], ...] = ({"SSO_SECRET_KEY_PREVIOUS": SECRET_KEY}, {})
    made = [
        create_app({"SSO_SECRET_KEY": NEW, "SSO_DATABASE_URL": str(url), **one}) for one in more
    ]
    yield made[0], made[1]
    for one in made:
        writer.flush(one)  # before the next test has tables of the same names
        with one.app_context():
            db.session.remove()
            db.engine.dispose()


@pytest.fixture
def both(others: tuple[Flask, Flask]) -> Flask:
    return others[0]


@pytest.fixture
def new(others: tuple[Flask, Flask]) -> Flask:
    return others[1]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "REKEYING_BATCH", 4)


def reencrypt(app: Flask, *options: str) -> Any:
    return app.test_cli_runner().invoke(args=["key", "reencrypt", "--json", *options])


def step(app: Flask, over_faults: bool = False) -> chain.RekeyingStep:
    with app.app_context():
        return chain.rekey(over_faults)


def faults_of(app: Flask) -> list[str]:
    with app.app_context():
        return chain.verify().faults


@pytest.mark.parametrize(
    "count", [0, 4, 5, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (1, 3, 8, 11))]
)
def test_the_whole_chain(app: Flask, both: Flask, new: Flask, count: int) -> None:
    happen(app, count)
    assert verify(app) == []
    assert faults_of(both) == []
    done = reencrypt(both)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["audit_events"]["changed"] == count
    for server in (both, new):
        happen(server, 2)
        assert verify(server) == []
    if count:
        assert faults_of(app) != []  # who has the old key alone can make nothing of it
        assert "audit_resealed" in names(new)
    assert json.loads(reencrypt(both).stdout)["audit_events"]["changed"] == 0


def test_while_it_is_under_way(app: Flask, both: Flask, new: Flask) -> None:
    """Events go on coming, from servers with either order of the two keys, and all is whole."""
    happen(app, 10)
    assert verify(app) == []
    first = step(both)
    assert (first.rekeyed, first.remaining, first.is_last) == (4, 6, False)
    assert faults_of(both) == []
    happen(both, 2)
    with both.app_context():
        assert chain.append_to_chain() == 2
    assert faults_of(both) == []
    with new.app_context():
        happen(new, 1)
        with pytest.raises(ChainBroken, match="SSO_SECRET_KEY_PREVIOUS"):
            chain.append_to_chain()
        db.session.rollback()
    assert "SSO_SECRET_KEY_PREVIOUS" in faults_of(new)[0]
    assert len(faults_of(new)) == 1
    steps = [step(both) for _ in range(4)]
    assert [one.rekeyed for one in steps] == [4, 4, 0, 0]
    assert steps[-1].is_last
    assert verify(new) == []
    assert verify(both) == []


def test_nothing_is_purged_meanwhile(app: Flask, both: Flask) -> None:
    happen(app, 10)
    assert verify(app) == []
    step(both)
    with both.app_context():
        audit.event(Event.EXPORTED)
        db.session.commit()
    refused = both.test_cli_runner().invoke(args=["purge"])
    assert refused.exit_code == 0  # nothing is old
    assert faults_of(both) == []


def test_the_other_way_round(app: Flask, both: Flask) -> None:
    """Who thinks better of it half way: the rest is done first, then all of it back."""
    back = create_app(
        {
            "SSO_SECRET_KEY": SECRET_KEY,
            "SSO_SECRET_KEY_PREVIOUS": NEW,
            "SSO_DATABASE_URL": str(app.config["SQLALCHEMY_DATABASE_URI"]),
        }
    )
    happen(app, 10)
    assert verify(app) == []
    step(both)
    assert reencrypt(back).exit_code == 0
    assert verify(app) == []
    writer.flush(back)
    with back.app_context():
        db.engine.dispose()


TAMPERING = [
    ("UPDATE audit_events SET user_id = 'x' WHERE number = 3", "event 3 "),
    ("DELETE FROM audit_events WHERE number = 4", "event 4 was removed"),
    ("DELETE FROM audit_events WHERE number >= 8", "events 8 to 10 were removed"),
    *(
        pytest.param(*tampering, marks=pytest.mark.exhaustive)
        for tampering in (
            ("UPDATE audit_events SET user_id = 'x' WHERE number = 10", "event 10 "),
            ("DELETE FROM audit_events WHERE number = 6", "event 6 was removed"),
            ("DELETE FROM audit_events WHERE number = 10", "event 10 was removed"),
        )
    ),
]


@pytest.mark.parametrize(("tampering", "fault"), TAMPERING)
def test_what_was_tampered_with_is_not_made_good(
    app: Flask, both: Flask, new: Flask, tampering: str, fault: str
) -> None:
    happen(app, 10)
    assert verify(app) == []
    execute(app, tampering)
    refused = reencrypt(both)
    assert refused.exit_code == 1
    assert "flask audit verify" in refused.stderr
    assert any(fault in one for one in faults_of(app))  # as it was
    assert reencrypt(both, "--over-faults").exit_code == 0
    found = verify(new)
    assert any(fault in one for one in found), found
    assert len(found) <= 2
    happen(new, 3)
    assert any(fault in one for one in verify(new))


@pytest.mark.parametrize(("tampering", "fault"), TAMPERING)
def test_tampering_half_way(app: Flask, both: Flask, tampering: str, fault: str) -> None:
    happen(app, 10)
    assert verify(app) == []
    step(both)
    execute(app, tampering)
    assert any(fault in one for one in faults_of(both))
    assert reencrypt(both).exit_code == 1
    assert any(fault in one for one in faults_of(both))


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit_chain SET resealed_number = 5",
        "UPDATE audit_chain SET resealed_number = NULL",
        "UPDATE audit_chain SET resealed_old_seal = resealed_new_seal",
        "UPDATE audit_chain SET resealed_new_seal = head_seal",
    ],
)
def test_the_boundary_is_sealed(app: Flask, both: Flask, tampering: str) -> None:
    happen(app, 10)
    assert verify(app) == []
    step(both)
    execute(app, tampering)
    assert any("forged" in one for one in faults_of(both))
    with both.app_context():
        with pytest.raises(ChainBroken):
            chain.rekey()
        db.session.rollback()


def test_a_secret_key_that_is_lost(app: Flask, new: Flask) -> None:
    """What was sealed with it stays unverifiable; what comes after is sealed again."""
    happen(app, 5)
    assert verify(app) == []
    assert reencrypt(new).exit_code == 1
    refused = new.test_cli_runner().invoke(args=["key", "rotate", "--lost-secret-key"])
    assert refused.exit_code == 0
    assert reencrypt(new).exit_code == 1
    assert reencrypt(new, "--over-faults").exit_code == 0
    happen(new, 3)
    before = verify(new)
    assert all("before the beginning" in one for one in before)
    execute(new, "UPDATE audit_events SET user_id = 'x' WHERE number = 6")
    assert any("event 6 " in one for one in verify(new))


def test_the_old_key_forges_nothing_afterwards(app: Flask, both: Flask, new: Flask) -> None:
    """The thief seals a changed event with the key that leaked, and the ends, too."""
    from sso.audit.chain import ends_mac, event_mac
    from sso.crypto.secrets import derive_key
    from sso.models import AuditChain, AuditEvent

    happen(app, 5)
    assert verify(app) == []
    assert reencrypt(both).exit_code == 0
    leaked = derive_key(SECRET_KEY, "audit chain")
    with app.app_context():
        chain, before = db.session.get_one(AuditChain, 1), ""
        for event in db.session.scalars(db.select(AuditEvent).order_by(AuditEvent.number)):
            if event.number is not None:
                event.user_id = "somebody else"
                before = event.seal = event_mac(leaked, event, event.number, before)
        chain.head_seal = before
        chain.seal = ends_mac(leaked, chain)
        db.session.commit()
    assert "forged" in verify(new)[0]
