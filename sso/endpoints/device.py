"""The page for devices (RFC 8628 §3.3): it asks for the code, then whether to sign the device in.

A correct code becomes a pending request, as at the authorization endpoint. Sign-in and second
factor are the same steps, and return here. Only the button of the last page approves anything.
"""

from flask import request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, context, database
from sso.crypto import user_codes
from sso.endpoints import authorize, browser_session, consent, page
from sso.endpoints.forms import ConsentForm, DeviceCodeForm
from sso.extensions import db
from sso.flow import decision, own_claims
from sso.i18n import N_
from sso.oauth import device_authorization
from sso.oauth.device_authorization import USER_CODE, DeviceRequest, InvalidUserCode
from sso.ratelimit import limiting
from sso.services import devices
from sso.store.devices import WaitingDevice
from sso.store.sessions import CurrentSession
from sso.web.pending_request import PendingRequest

_WRONG = N_(
    "This code is wrong or has expired. Compare it with the code on your device, or start again "
    "there."
)
_NOTHING_TICKED = N_("Tick at least one entry, or cancel.")
_DONE = ("approved", "denied")
_OTHER_PAGES = decision.SignIn | decision.SecondFactor | decision.AcceptTerms


def device() -> Response:
    """Ask for the code of a device, then whether to sign the device in (RFC 8628)."""
    if request.method == "GET" and request.args.get("done") in _DONE:
        return page.render("device_done.html", is_approved=request.args["done"] == "approved")
    pending = page.pending_request()
    if pending is None:
        return _enter_code()
    if not device_authorization.is_of_device(pending.parameters):
        return authorize.resume(pending)
    validated, step = page.validate(pending)
    current = browser_session.current_session()
    if isinstance(step, decision.Refuse | decision.Answer):
        return authorize.to_device()  # the second factor was cancelled
    if current is None or isinstance(step, _OTHER_PAGES):
        return authorize.to_step(authorize.endpoint_of(step), pending)
    if isinstance(step, decision.Forbid):
        return consent.forbidden(validated, current, pending, step.api, back_url=None)
    return _ask(validated, current, step, pending)


def _enter_code() -> Response:
    form, current, error, wait = DeviceCodeForm(), browser_session.current_session(), None, 0
    if form.validate_on_submit():
        rule = limiting.DEVICE_CODE if current else limiting.DEVICE_CODE_BY_ANYONE
        attempt, wait = page.try_once(current.user.email if current else "", rule)
        waiting = None if wait else _find(form.user_code.data, current)
        if waiting:
            attempt.passed(forget=False)
            return authorize.to_step("pages.device", waiting)
        if not wait:
            attempt.failed()
        error = limiting.waiting_time(wait) if wait else gettext(_WRONG)
    else:
        # A link may bring the code. It is not looked up: that would be a guess without limit.
        code = user_codes.read(request.args.get(USER_CODE, ""))
        form.user_code.data = user_codes.shown(code) if code else ""
        if request.args.get("problem") == "code":
            error = gettext(_WRONG)
    return page.render("device.html", wait=wait, form=form, error=error)


def _find(text: str, current: CurrentSession | None) -> PendingRequest | None:
    """Return the pending request of the device with this code; record a wrong code."""
    code = user_codes.read(text)
    try:
        if code is None:
            raise InvalidUserCode
        with database.reading() as connection:
            device = device_authorization.find(connection, code)
    except InvalidUserCode as error:
        device_authorization.record_invalid(error, current.user.id if current else None)
        return None
    return PendingRequest({"client_id": device.client_id, USER_CODE: code})


def _ask(
    validated: authorize.Validated,
    current: CurrentSession,
    step: decision.AskConsent,
    pending: PendingRequest,
) -> Response:
    """Show what the device requests and where it asked from; carry out the user's decision."""
    waiting, owner, form, error = validated.grant, validated.owner, ConsentForm(), None
    assert isinstance(waiting, DeviceRequest)
    assert owner
    if form.validate_on_submit():
        allowed, declined = consent.choice(form, step)
        # Scopes that were added while the page was open are asked about now.
        is_whole = step.scopes <= {*allowed, *declined}
        if form.decision.data == "allow" and not allowed:
            error = gettext(_NOTHING_TICKED)
        elif form.decision.data != "allow" or is_whole:
            return _decide(form, validated, current, waiting.device, (allowed, declined), pending)
    ticks = consent.declined_of(owner)
    return page.render(
        "device_confirm.html",
        form=form,
        error=error,
        client_name=validated.client.name,
        client_logo=page.logo_of(validated.client),
        service=context.branding().name,
        user=current.user,
        user_code=user_codes.shown(waiting.user_code),
        device=waiting.device,
        items=consent.items(current.user, step.scopes, ticks),
        apis=consent.api_items(current.user, waiting.request.apis, step.scopes, ticks),
        roles=consent.roles_of(current.user, validated.client.roles, step.scopes),
        claims=own_claims.about_people(validated.client.own_claims),
        offered=" ".join(sorted(step.scopes)),
        switch_url=consent.switch_url(pending),
    )


def _decide(
    form: ConsentForm,
    validated: authorize.Validated,
    current: CurrentSession,
    device: WaitingDevice,
    choice: tuple[list[str], list[str]],
    pending: PendingRequest,
) -> Response:
    owner, asked, user = validated.owner, validated.grant.request.asked, current.user
    assert owner
    if form.decision.data != "allow":
        if devices.deny(audit.USER, user, device):
            return page.done("pages.device", done="denied")
    elif devices.approve(audit.USER, user, owner, validated.client, device, asked, *choice):
        return page.done("pages.device", done="approved")
    db.session.rollback()
    return authorize.to_step("pages.device", pending)  # look again at what has changed
