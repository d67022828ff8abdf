"""What expires is over at its very end, and each condition of a statement refuses by itself."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import clock as sso_clock
from sso.extensions import db
from sso.flow.refusals import Reason
from sso.jobs import upkeep
from sso.models import (
    ApiToken,
    BrowserSession,
    Client,
    DeviceCode,
    Grant,
    Identity,
    MailToken,
    Passkey,
    PushedRequest,
    SigningKey,
    Token,
    UpstreamSession,
    User,
)
from sso.store import (
    clients,
    devices,
    exchanges,
    factors,
    identities,
    keys,
    mail_tokens,
    redemption,
    service_tokens,
    sessions,
    tokens,
)
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.devices import Device, enter, make_device
from tests.support.factories import make_client, make_user, new_token

SECOND = timedelta(seconds=1)
LATE = (-SECOND, 0 * SECOND, SECOND)
END = datetime.fromisoformat("2026-11-30T12:00:00+00:00")


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.stand_still()
    return clock


@pytest.fixture
def app(make_app: Any) -> Flask:
    """One database is enough here; test_races.py has both."""
    made: Flask = make_app()
    return made


def _code(**more: Any) -> redemption.PresentedCode:
    return redemption.PresentedCode(
        "https://a.example", None, None, None, once=False, expires_at=END,
        **{"used_at": None} | more,
    )  # fmt: skip


def _refresh_token(**more: Any) -> tokens.PresentedRefresh:
    return tokens.PresentedRefresh(
        **{"refresh_expires_at": END, "refresh_used_at": None, "dpop_jkt": None} | more
    )


def _device(**more: Any) -> devices.WaitingDevice:
    return devices.WaitingDevice(
        "x", "a", None, None, "", "", created_at=END, expires_at=END,
        **{"answered_at": None} | more,
    )  # fmt: skip


LIVING: dict[str, Callable[[datetime], list[bool]]] = {
    "code": lambda now: [_code().is_live(now), _code(used_at=END).is_live(now)],
    "refresh token": lambda now: [
        _refresh_token().is_live(now), _refresh_token(refresh_used_at=END).is_live(now),
    ],
    "device": lambda now: [_device().is_waiting(now), _device(answered_at=END).is_waiting(now)],
}  # fmt: skip


@pytest.mark.parametrize("what", LIVING)
def test_it_lives_until_its_end(what: str) -> None:
    assert [LIVING[what](END + late) for late in LATE] == [
        [True, False], [False, False], [False, False],
    ]  # fmt: skip


def test_why_a_pushed_request_is_refused() -> None:
    pushed = redemption.Pushed("mine", "{}", expires_at=END, waits_until=None, used_at=None)
    for is_waiting, until in ((False, END), (True, END + redemption.PUSHED_LIFETIME)):
        for late, over in zip(LATE, (False, True, True), strict=True):
            for change, reason in (
                ({}, None),
                ({"used_at": END}, Reason.USED_BEFORE),
            ):
                refusal = replace(pushed, **change).refusal(  # type: ignore[arg-type]  # mypy/5382
                    "mine", until + late, is_waiting=is_waiting
                )
                too_late = Reason.WAITED_TOO_LONG if is_waiting else Reason.EXPIRED
                assert refusal == (reason or (too_late if over else None))
            for other in ("other", ""):
                refusal = pushed.refusal(other, until + late, is_waiting=is_waiting)
                assert refusal == Reason.ISSUED_TO_ANOTHER
    until = END + 100 * SECOND
    waiting = replace(pushed, waits_until=until)
    ends = [waiting.refusal("mine", until + late, is_waiting=True) for late in LATE]
    assert ends == [None, Reason.WAITED_TOO_LONG, Reason.WAITED_TOO_LONG]


@pytest.mark.parametrize(
    ("waits", "ago", "is_purged"),
    [(None, 120, True), (3600, 120, False), (61, 120, False), (59, 120, True),
     (None, 59, False)],
)  # fmt: skip
def test_a_pushed_request_that_waits_is_not_purged(
    app: Flask, clock: Clock, waits: int | None, ago: int, is_purged: bool
) -> None:
    """The clock of another node may be a minute slow."""
    client = make_client(app)
    with app.app_context():
        now = sso_clock.now()
        pushed_at = now - ago * SECOND
        db.session.add(
            PushedRequest(
                digest="x", client_id=client.client_id, parameters="{}", expires_at=pushed_at,
                waits_until=None if waits is None else pushed_at + waits * SECOND,
            )
        )  # fmt: skip
        db.session.commit()
        upkeep.purge()
        left = db.session.scalar(select(PushedRequest.digest))
        assert (left is None) is is_purged


class Approved:
    """A device whose code was approved, and not redeemed yet."""

    def __init__(self, app: Flask, browser: Browser) -> None:
        self.app, self.device = app, make_device(app)
        self.device.ask()
        enter(browser, self.device.user_code)
        browser.allow()

    def redeemed(self, device: Device | None = None) -> bool:
        """Whether it could be redeemed now; undone at the end."""
        client_id = (device or self.device).client_id
        with self.app.app_context():
            row = db.session.scalars(select(DeviceCode)).one()
            grant_id = db.session.scalars(select(Grant.id)).one()
            new, on = new_token(grant_id), db.session.connection()
            redeemed = devices.redeem(on, row.digest, client_id, new)
            db.session.rollback()
        return redeemed

    def change(self, table: Any, **values: Any) -> None:
        with self.app.app_context():
            db.session.execute(update(table).values(**values))
            db.session.commit()


@pytest.fixture
def approved(app: Flask, browser: Browser, user: User, clock: Clock) -> Approved:
    return Approved(app, browser)


@pytest.mark.parametrize("late", LATE)
def test_a_device_code_is_redeemed_before_its_end(approved: Approved, late: timedelta) -> None:
    approved.change(DeviceCode, expires_at=sso_clock.now() - late)
    assert approved.redeemed() is (late < 0 * SECOND)


def test_a_device_code_is_redeemed_if_all_is_well(approved: Approved) -> None:
    assert approved.redeemed()
    assert not approved.redeemed(make_device(approved.app))
    now = sso_clock.now()
    for table, column in ((DeviceCode, "used_at"), (Grant, "ended_at")):
        approved.change(table, **{column: now})
        assert not approved.redeemed()
        approved.change(table, **{column: None})
    approved.change(DeviceCode, grant_id=None)
    assert not approved.redeemed()


@pytest.mark.parametrize("late", LATE)
def test_a_device_is_answered_once_before_its_end(
    app: Flask, clock: Clock, late: timedelta
) -> None:
    device = make_device(app)
    device.ask()
    with app.app_context():
        row = db.session.scalars(select(DeviceCode)).one()
        clock.time = row.expires_at + late
        on = db.session.connection()
        assert [devices.answer(on, row.digest, None) for _ in range(2)] == [
            late < 0 * SECOND, False,
        ]  # fmt: skip


def _mail_token(user_id: UUID, **more: Any) -> MailToken:
    values = {"digest": "x", "purpose": "code", "address": "a@example.com", "bound_to": "b"}
    return MailToken(user_id=user_id, expires_at=END, **values | more)


TRIES: dict[str, Callable[[MailToken], bool]] = {
    "spend_try": lambda token: bool(
        token.user_id and mail_tokens.spend_try(token.user_id, "code", "b", 3)
    ),
    "spend_try_of": lambda token: bool(mail_tokens.spend_try_of(token.id, "code", 3)),
    "set_code": lambda token: mail_tokens.set_code(
        token.id, "code", digest="y", user=db.session.scalars(select(User)).one(), bound_to="b",
        expires_at=END,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIES)
def test_a_mailed_code_can_be_tried_until_its_end(
    app: Flask, user: User, clock: Clock, name: str
) -> None:
    changes: list[tuple[dict[str, Any], timedelta, bool]] = [
        ({}, -SECOND, True), ({}, 0 * SECOND, False), ({}, SECOND, False),
        ({"used_at": END}, -SECOND, False), ({"purpose": "other"}, -SECOND, False),
        ({"failures": 2}, -SECOND, True), ({"failures": 3}, -SECOND, name == "set_code"),
        ({"bound_to": "c"}, -SECOND, name != "spend_try"),
    ]  # fmt: skip
    for change, late, works in changes:
        clock.time = END + late
        with app.app_context():
            token = _mail_token(user.id, **change)
            db.session.add(token)
            db.session.flush()
            assert TRIES[name](token) is works, (change, late)
            db.session.rollback()


def test_a_service_token_of_a_disabled_client(app: Flask, clock: Clock) -> None:
    client = make_client(app)
    with app.app_context():
        on, now = db.session.connection(), sso_clock.now()
        seen = db.session.scalars(select(Client.updated_at)).one()
        new = service_tokens.NewServiceToken(
            "jti", client.client_id, "aud", "scope", "digest", None, now, now + SECOND
        )
        assert service_tokens.add(on, new, seen)
        assert service_tokens.find(on, "jti")
        db.session.execute(update(Client).values(disabled_at=now))
        assert service_tokens.find(db.session.connection(), "jti") is None


@pytest.mark.parametrize("late", LATE)
def test_a_session_lives_until_its_end(
    app: Flask, browser: Browser, user: User, clock: Clock, late: timedelta
) -> None:
    client = make_client(app)
    browser.sign_in()
    with app.app_context():
        session = db.session.scalars(select(BrowserSession)).one()
        on, digest = db.session.connection(), session.digest
        session_id, end = session.id, session.expires_at
        asking: list[Callable[[], Any]] = [
            lambda: sessions.find_live(digest),
            lambda: sessions.find_live_fresh(digest),
            lambda: sessions.find_with_client(on, client.client_id, digest)[1],
            lambda: sessions.find_owner(on, digest),
            lambda: sessions.of_user(user.id),
            lambda: sessions.live_with([session_id]),
            lambda: sessions.surplus(user.id, 0),
            lambda: sessions.end(BrowserSession.user_id == user.id),
        ]
        live = []
        for ask in asking:
            clock.time = end + late
            live.append(bool(ask()))
        assert set(live) == {late < 0 * SECOND}


def test_sign_ins_are_used_for_decisions_once(app: Flask, browser: Browser, user: User) -> None:
    browser.sign_in()
    with app.app_context():
        on, session_id = (
            db.session.connection(),
            db.session.scalars(select(BrowserSession.id)).one(),
        )
        use = partial(sessions.use_decisions, on, session_id)
        assert not use(END, END)  # another value was seen
        assert use(None, END)
        assert not use(None, END + SECOND)
        assert use(END, END + SECOND)
        assert not use(END, END + 2 * SECOND)
        assert not sessions.use_decisions(on, uuid4(), END + SECOND, END)


@pytest.mark.parametrize(
    ("stored", "sent", "works"),
    [(0, 0, True), (0, 1, True), (5, 6, True), (5, 5, False), (5, 4, False), (5, 0, False)],
)
def test_the_counter_of_a_copied_passkey(
    app: Flask, user: User, stored: int, sent: int, works: bool
) -> None:
    with app.app_context():
        key = Passkey(
            user_id=user.id, name="x", credential_id="x", public_key="x", sign_count=stored
        )
        factors.add_passkey(key)
        assert factors.use_passkey(key, END, sent, END) is works


def test_an_older_challenge_than_the_last_answered_one(app: Flask, user: User) -> None:
    with app.app_context():
        key = Passkey(user_id=user.id, name="x", credential_id="x", public_key="x")
        factors.add_passkey(key)
        answers = [factors.use_passkey(key, END + late, 0, END) for late in (*LATE, -SECOND)]
        assert answers == [True, True, True, False]
        assert not factors.use_passkey(key, END + SECOND, 0, END)


def test_an_identity_is_removed_by_its_user_alone(app: Flask, user: User) -> None:
    erin = make_user(app, "erin@example.com")
    with app.app_context():
        identity = Identity(user_id=user.id, provider="corp", issuer="i", subject="1")
        identities.add(identity)
        identity_id = identity.id
        assert identities.remove(erin.id, identity_id) is None
        assert identities.remove(user.id, uuid4()) is None
        assert identities.remove(user.id, identity_id)
        assert identities.remove(user.id, identity_id) is None


def test_a_sign_in_at_a_provider_is_checked_by_one_process(app: Flask, user: User) -> None:
    with app.app_context():
        identity = Identity(user_id=user.id, provider="corp", issuer="i", subject="1")
        identities.add(identity)
        sign_in = UpstreamSession(identity_id=identity.id, amr="fed", checked_at=END)
        identities.add_session(sign_in)
        checked = [identities.claim_check(sign_in.id, END, END + SECOND) for _ in range(2)]
        assert checked == [True, False]
        assert identities.claim_check(sign_in.id, None, END + 2 * SECOND)


def test_a_key_that_was_encrypted_again_meanwhile(app: Flask) -> None:
    with app.app_context():
        key = db.session.scalars(select(SigningKey).limit(1)).one()
        kid, before = key.kid, key.sealed_private_jwk
        assert not keys.replace_signing_key(kid, "of another process", "mine")
        assert not keys.replace_signing_key("another", before, "mine")
        assert [keys.replace_signing_key(kid, before, "mine") for _ in range(2)] == [True, False]


def _api_token(**more: Any) -> ApiToken:
    return ApiToken(name="x", digest=uuid4().hex, scope="scim:read", expires_at=END, **more)


def test_tokens_of_owners_are_revoked_once(app: Flask, clock: Clock) -> None:
    owner, other = uuid4(), uuid4()
    with app.app_context():
        mine = _api_token(owner_id=owner)
        before = _api_token(owner_id=owner, revoked_at=END)
        theirs, nobodys = _api_token(owner_id=other), _api_token()
        for token in (mine, before, theirs, nobodys):
            keys.add_api_token(token)
        assert [token.id for token in keys.revoke_of([owner])] == [mine.id]
        assert keys.revoke_of([owner]) == []
        db.session.expire_all()
        moments = [token.revoked_at for token in (mine, before, theirs, nobodys)]
        assert moments[0]
        assert moments[1:] == [END, None, None]


def test_the_use_of_a_token_is_noted_once_a_minute(app: Flask, clock: Clock) -> None:
    with app.app_context():
        token = _api_token()
        keys.add_api_token(token)
        noted: list[str | None] = []
        for seconds in (0, 59, 1, 59, 61):
            clock.move(seconds=seconds)
            keys.note_api_token_use(token, f"192.0.2.{len(noted)}")
            db.session.commit()
            db.session.refresh(token)
            noted.append(token.last_used_address)
        assert noted == [f"192.0.2.{number}" for number in (0, 0, 2, 2, 4)]


def test_whom_an_exchanged_token_was_issued_to(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    client.exchange(browser.approve(client).code)
    with app.app_context():
        jti = db.session.scalars(select(Token.jti)).one()
        subject = exchanges.find(db.session.connection(), jti)
        assert subject
        assert subject.issued_to == client.client_id
        assert replace(subject, client_id="another").issued_to == "another"
        owner = clients.registered(db.session.connection(), client.client_id)
        assert owner
        assert subject.owner.client_id == owner.client_id
