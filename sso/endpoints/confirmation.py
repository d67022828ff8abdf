"""The question before something ends: what will end, and a button that posts to its page.

docs/explanation/revocation.md has what ends what.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flask import request
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso.endpoints import page
from sso.endpoints.forms import AccountForm
from sso.store import factors, grants, sessions
from sso.store.sessions import CurrentSession

_ACCOUNT, _FACTORS = "pages.account", "pages.factors"


@dataclass(frozen=True)
class Question:
    """`endpoint`: of the page that the button posts to, with `action` and one more field."""

    endpoint: str
    title: str
    effects: Sequence[str]
    button: str
    field: tuple[str, str] | None = None


@login_required
def confirm() -> Response:
    """Asks before sessions, an application's access or a second factor end, and says what ends."""
    current, action = page.signed_in(), request.args.get("action", "")
    question = _of_account(action, current) or _of_factors(action, current)
    if question is None:  # it has ended meanwhile
        return page.to_step(_ACCOUNT)
    return page.render(
        "confirm.html",
        form=AccountForm(),
        action=action,
        question=question,
        page_url=page.step(question.endpoint),
    )


def _of_account(action: str, current: CurrentSession) -> Question | None:
    accesses = grants.accesses_of(current.user.id)
    if action == "withdraw":
        asked = request.args.get("client")
        found = next((one.client for one in accesses if one.client.client_id == asked), None)
        return (
            None
            if found is None
            else Question(
                _ACCOUNT,
                gettext("Withdraw access of %(client)s?", client=found.name),
                (
                    gettext("It loses access in all your sessions, and signs you out if it can."),
                    gettext("What it has already received stays there."),
                ),
                gettext("Withdraw access"),
                ("client", found.client_id),
            )
        )
    is_everywhere = action == "end_all_sessions"
    if not is_everywhere and action != "end_other_sessions":
        return None
    count = len(sessions.of_user(current.user.id))
    kept = [one.client.name for one in accesses if "offline_access" in one.scope.split()]
    effects = [
        gettext("Sessions that end: %(count)s, including this one.", count=count)
        if is_everywhere
        else gettext("Sessions that end: %(count)s. This one stays.", count=count - 1),
        gettext("Applications that you use in these sessions lose access, and sign you out if "
                "they can."),
    ]  # fmt: skip
    if kept:
        effects.append(
            gettext(
                "Access that you allowed to continue after you sign out stays until you withdraw "
                "it: %(clients)s.",
                clients=", ".join(kept),
            )
        )
    if is_everywhere:
        return Question(_ACCOUNT, gettext("Sign out everywhere?"), effects,
                        gettext("Sign out everywhere"))  # fmt: skip
    return Question(_ACCOUNT, gettext("End all other sessions?"), effects,
                    gettext("End all other sessions"))  # fmt: skip


def _of_factors(action: str, current: CurrentSession) -> Question | None:
    known = factors.of_user(current.user.id)
    last = [gettext("It is your only second factor. Without it, your password alone is enough to "
                    "sign in, and your recovery codes stop working.")]  # fmt: skip
    match action:
        case "remove_totp" if known.totp:
            return Question(
                _FACTORS,
                gettext("Remove the authenticator app?"),
                [
                    gettext("Its codes stop working. Delete the entry in the app as well."),
                    *(last if known.count == 1 else ()),
                ],
                gettext("Remove the authenticator app"),
            )
        case "remove_passkey":
            asked = request.args.get("passkey")
            found = next((one for one in known.passkeys if str(one.id) == asked), None)
            return None if found is None else Question(
                _FACTORS,
                gettext("Remove %(name)s?", name=found.name),
                [
                    gettext("You can no longer sign in with this passkey. Delete it on your "
                            "device as well."),
                    *(last if known.count == 1 and current.user.password_hash else ()),
                ],
                gettext("Remove the passkey"),
                ("passkey", asked or ""),
            )  # fmt: skip
        case "new_codes" if known:
            return Question(
                _FACTORS,
                gettext("Create new recovery codes?"),
                [gettext("Your old codes stop working: %(count)s.", count=known.recovery_codes)],
                gettext("Create new recovery codes"),
            )
    return None
