"""Why a code that somebody typed, or a device that asks, was refused."""

from flask import Flask

from sso import audit
from sso.config.client_fields import DEVICE_CODE
from sso.extensions import db
from sso.models import User
from sso.services import clients
from sso.services.changes import ListEdit
from tests.conftest import Clock
from tests.support.actors import Browser
from tests.support.devices import PAGE, Device, enter, make_device
from tests.support.explaining import Explain
from tests.support.factories import make_client


def test_codes_that_people_type(
    app: Flask, browser: Browser, user: User, clock: Clock, explain: Explain
) -> None:
    device = make_device(app)

    def enter_code(code: str) -> str:
        browser.open(PAGE)
        return explain(browser.submit(user_code=code))

    assert "No device waits for the code that was typed." in enter_code("BCDF-GHJK")
    device.ask()
    code = device.user_code
    enter(browser, code)
    browser.allow()
    assert "had been answered before" in enter_code(code)
    device.ask()
    clock.move(minutes=11)
    assert "had expired: it is valid for 10 minutes" in enter_code(device.user_code)


def test_what_ends_while_the_page_is_open(
    app: Flask, browser: Browser, user: User, explain: Explain
) -> None:
    device = make_device(app)
    device.ask()
    enter(browser, device.user_code)
    with app.app_context():
        clients.disable(audit.SYSTEM, device.client_id)
        db.session.commit()
    browser.allow()
    assert "The client has been disabled since" in explain(browser.history[-2])


def test_a_device_that_asks_too_late(
    app: Flask, browser: Browser, user: User, clock: Clock, explain: Explain
) -> None:
    device = make_device(app)
    device.ask()
    clock.move(minutes=11)
    assert "Nobody had answered within 10 minutes" in explain(device.poll())


def test_device_codes(
    app: Flask, browser: Browser, user: User, clock: Clock, explain: Explain
) -> None:
    device = make_device(app)
    assert "No such device code is stored here" in explain(device.poll(device_code="sso_dc_x"))
    device.ask()
    other = make_device(app, name="Other")
    stolen = other.poll(device_code=device.codes["device_code"])
    assert f"was issued to Television ({device.client_id})" in explain(stolen)
    enter(browser, device.user_code)
    browser.allow()
    device.poll()
    clock.move(minutes=1)
    text = explain(device.poll())
    assert "The device code was used before" in text
    assert "stop asking when it has its tokens" in text


def test_a_client_that_is_registered_for_devices_by_now(app: Flask, explain: Explain) -> None:
    client = make_client(app)
    device = Device(app, client.client_id, client.client_secret, "")
    answer = device.ask()
    assert f"client update {client.client_id} --device" in explain(answer)
    with app.app_context():
        edit = {"grant_types": ListEdit(added=(DEVICE_CODE,))}
        clients.change(audit.SYSTEM, client.client_id, {}, lists=edit)
        db.session.commit()
    assert "It is registered now." in explain(answer)
    assert device.ask().status_code == 200


def test_a_refusal(app: Flask, browser: Browser, user: User, explain: Explain) -> None:
    device = make_device(app)
    device.ask()
    enter(browser, device.user_code)
    browser.deny()
    assert "it was the person's decision" in explain(device.poll())
