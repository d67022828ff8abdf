"""The user's own page of second factors: passkeys, authenticator app, recovery codes."""

from collections.abc import Callable
from dataclasses import replace

from flask import make_response, redirect, render_template, request, url_for
from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.redirects import confirm_first, step
from sso.extensions import db
from sso.flow import decision
from sso.i18n import N_
from sso.mfa import passkeys, policy, proof, recovery
from sso.services import mail_links, notifications
from sso.store import factors as store
from sso.store import passkeys as stored_passkeys
from sso.store import recovery_codes, totp_secrets
from sso.store.sessions import CurrentSession
from sso.web import browser_session, headers
from sso.web.pending_request import PendingRequest

NAME_LENGTH = 60
APP_NAME = N_("Authenticator app")


def factors() -> Response:
    """Show the factors; a POST adds or removes one, if the sign-in is fresh."""
    visit = browser_session.current_session()
    if visit is None:
        return confirm_first()
    waiting = authorize.read_waiting()
    if "resume" in request.args and waiting is None:
        return authorize.stale()
    known = store.of_user(visit.user.id)
    fault = None
    if request.method == "POST" and DecisionForm().validate():
        if request.form.get("action") == "cancel" and waiting:
            return authorize.resume(replace(waiting, denied=True))
        locked = policy.lock(visit)
        if locked is None:
            return confirm_first()
        visit, known = locked, store.of_user(locked.user.id)
        if policy.asks_for_code(visit, known):
            return redirect(step("pages.factor_code"), 303)
        if not policy.may_change(visit, known):
            return confirm_first()
        act = _ACTIONS.get(request.form.get("action", ""))
        answer = act(visit, known) if act else None
        if isinstance(answer, Response):
            return answer
        db.session.rollback()
        fault, known = answer, store.of_user(visit.user.id)
    return _page(visit, known, fault, waiting)


def added(
    visit: CurrentSession, known: store.Factors, kind: str, name: str, methods: str
) -> Response:
    """A factor was set up, and so shown. The first one brings a sheet of recovery codes. Commits.

    `known`: the factors before, read under `policy.lock`. `name`: for the notice.
    With the first one ends what the password alone has opened elsewhere, `offline_access` included.
    """
    audit.event(Event.FACTOR_ADDED, user=visit.user.id, kind=kind)
    notifications.factor_added(visit.user, name)
    if not known:
        mail_links.end_before_factors(visit.user)
        browser_session.end_others(visit, "factor_added", grants=True)
        codes = recovery.renew(visit.user.id)
    browser_session.step_up(visit, methods)
    db.session.commit()
    return show_codes(codes) if not known else _done(kind)


def show_codes(codes: list[str]) -> Response:
    """The sheet of recovery codes, this once."""
    waits = bool(request.args.get("resume"))
    on = step("pages.authorize") if waits else url_for("pages.factors")
    return make_response(render_template("recovery_codes.html", codes=codes, next_url=on))


def _add_passkey(visit: CurrentSession, known: store.Factors) -> Response | str:
    name = "".join(c for c in request.form.get("name", "") if c.isprintable()).strip()
    if not name:
        return N_("Give the passkey a name.")
    if len(known.passkeys) >= passkeys.MOST:
        return N_("You have as many passkeys as there can be. Remove one first.")
    answer, challenge = request.form.get("credential", ""), request.form.get("challenge", "")
    try:
        made = passkeys.enrol(visit.user, name[:NAME_LENGTH], answer, challenge)
    except IntegrityError:
        db.session.rollback()
        return N_("This passkey is registered already.")
    if made is None:
        return N_("The passkey could not be set up. Please try again.")
    return added(visit, known, "passkey", made.name, proof.passkey_methods(made.is_synced))


def _remove_passkey(visit: CurrentSession, known: store.Factors) -> Response | str:
    chosen = [one for one in known.passkeys if str(one.id) == request.form.get("passkey")]
    if not chosen:
        return N_("There is no such passkey any more.")
    if len(known.passkeys) == 1 and visit.user.password_hash is None:
        return N_("This passkey is your only way to sign in. Add another one first.")
    stored_passkeys.remove(visit.user.id, chosen[0].id)
    return _removed(visit, known, "passkey", chosen[0].name)


def _remove_totp(visit: CurrentSession, known: store.Factors) -> Response | str:
    if not totp_secrets.remove(visit.user.id):
        return N_("There is no authenticator app any more.")
    return _removed(visit, known, "totp", APP_NAME)


def _removed(visit: CurrentSession, known: store.Factors, kind: str, name: str) -> Response:
    if known.count == 1:
        # They stand in for a factor; without one they would only be forgotten.
        recovery_codes.remove(visit.user.id)
    audit.event(Event.FACTOR_REMOVED, user=visit.user.id, kind=kind)
    notifications.factor_removed(visit.user, name)
    db.session.commit()
    return _done("removed")


def _new_codes(visit: CurrentSession, known: store.Factors) -> Response | str:
    if not known:
        return N_("Set up a passkey or an authenticator app first.")
    codes = recovery.renew(visit.user.id)
    notifications.recovery_codes_made(visit.user)
    db.session.commit()
    return show_codes(codes)


def _done(what: str) -> Response:
    waits = bool(request.args.get("resume"))
    return redirect(step("pages.authorize") if waits else url_for("pages.factors", done=what), 303)


def _page(
    visit: CurrentSession, known: store.Factors, fault: str | None, waiting: PendingRequest | None
) -> Response:
    client_name = None
    if waiting:
        validated = authorize.validate(waiting)
        if isinstance(validated, Response):
            return validated
        found = authorize.decide(validated)
        if found != decision.SecondFactor(enrol=True):
            return authorize.resume(waiting)
        client_name = validated.client.name
    fresh = policy.may_change(visit, known)
    by_passkey = fresh and passkeys.available() and len(known.passkeys) < passkeys.MOST
    if by_passkey:
        headers.allow_own_script()
    html = render_template(
        "factors.html",
        form=DecisionForm(formdata=None),
        user_name=visit.user.name,
        user_email=visit.user.email,
        known=known,
        fresh=fresh,
        asks_for_code=policy.asks_for_code(visit, known),
        code_url=step("pages.factor_code"),
        passkey=passkeys.ask_to_enrol(visit.user, list(known.passkeys)) if by_passkey else None,
        passkeys_work_here=passkeys.available(),
        name_length=NAME_LENGTH,
        fault=fault,
        done=_DONE.get(request.args.get("done", "")),
        client_name=client_name,
        totp_url=step("pages.totp_setup"),
        confirm_url=step("pages.sign_in", back="factors"),
        account_url=url_for("pages.account"),
    )
    return make_response(html)


_ACTIONS: dict[str, Callable[[CurrentSession, store.Factors], Response | str]] = {
    "add_passkey": _add_passkey,
    "remove_passkey": _remove_passkey,
    "remove_totp": _remove_totp,
    "new_codes": _new_codes,
}

_DONE = {
    "passkey": N_("The passkey was added."),
    "totp": N_("The authenticator app was added."),
    "removed": N_("It was removed."),
}
