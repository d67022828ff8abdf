"""The page that asks before sessions, access or a second factor end, and lists the effects.

The table of effects is in docs/explanation/revocation.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flask import request
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso.endpoints import page
from sso.endpoints.forms import AccountForm
from sso.models import Client
from sso.services import agent_identity
from sso.store import factors, grants, sessions
from sso.store.sessions import CurrentSession

_ACCOUNT, _FACTORS = "pages.account", "pages.factors"


@dataclass(frozen=True)
class Question:
    """A question before an action. `endpoint`: the page to which the button posts `action`."""

    endpoint: str
    title: str
    effects: Sequence[str]
    button: str
    field: tuple[str, str] | None = None


@login_required
def confirm() -> Response:
    """Ask before sessions, access or a second factor end, and list the effects."""
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
        client_id = request.args.get("client")
        client = next(
            (access.client for access in accesses if access.client.client_id == client_id), None
        )
        return (
            None
            if client is None
            else Question(
                _ACCOUNT,
                gettext("Withdraw access of %(client)s?", client=agent_identity.title_of(client)),
                (
                    gettext("It loses access in all your sessions, and signs you out if it can."),
                    gettext("What it has already received stays there."),
                ),
                gettext("Withdraw access"),
                ("client", client.client_id),
            )
        )
    if action == "end_agents":
        return _of_agents([access.client for access in accesses if access.client.is_agent])
    is_everywhere = action == "end_all_sessions"
    if not is_everywhere and action != "end_other_sessions":
        return None
    count = len(sessions.of_user(current.user.id))
    lasting = [
        agent_identity.title_of(access.client)
        for access in accesses
        if "offline_access" in access.scope.split()
    ]
    effects = [
        gettext("Sessions that end: %(count)s, including this one.", count=count)
        if is_everywhere
        else gettext("Sessions that end: %(count)s. This one stays.", count=count - 1),
        gettext("Applications that you use in these sessions lose access, and sign you out if "
                "they can."),
    ]  # fmt: skip
    if lasting:
        effects.append(
            gettext(
                "Access that you allowed to continue after you sign out stays until you withdraw "
                "it: %(clients)s.",
                clients=", ".join(lasting),
            )
        )
    if is_everywhere:
        return Question(_ACCOUNT, gettext("Sign out everywhere?"), effects,
                        gettext("Sign out everywhere"))  # fmt: skip
    return Question(_ACCOUNT, gettext("End all other sessions?"), effects,
                    gettext("End all other sessions"))  # fmt: skip


def _of_agents(agents: Sequence[Client]) -> Question | None:
    if not agents:
        return None
    names = ", ".join(sorted({agent_identity.title_of(client) for client in agents}))
    return Question(
        _ACCOUNT,
        gettext("End the access of all agents?"),
        (
            gettext("They lose access at once: %(agents)s.", agents=names),
            gettext("What they have already received or done stays."),
            gettext("An agent that you connect again asks you again."),
        ),
        gettext("End all agents"),
    )


def _of_factors(action: str, current: CurrentSession) -> Question | None:
    own_factors = factors.of_user(current.user.id)
    last = [gettext("It is your only second factor. Without it, your password alone is enough to "
                    "sign in, and your recovery codes stop working.")]  # fmt: skip
    match action:
        case "remove_totp" if own_factors.totp:
            return Question(
                _FACTORS,
                gettext("Remove the authenticator app?"),
                [
                    gettext("Its codes stop working. Delete the entry in the app as well."),
                    *(last if own_factors.count == 1 else ()),
                ],
                gettext("Remove the authenticator app"),
            )
        case "remove_passkey":
            passkey_id = request.args.get("passkey")
            passkey = next(
                (
                    candidate
                    for candidate in own_factors.passkeys
                    if str(candidate.id) == passkey_id
                ),
                None,
            )
            return None if passkey is None else Question(
                _FACTORS,
                gettext("Remove %(name)s?", name=passkey.name),
                [
                    gettext("You can no longer sign in with this passkey. Delete it on your "
                            "device as well."),
                    *(last if own_factors.count == 1 and current.user.password_hash else ()),
                ],
                gettext("Remove the passkey"),
                ("passkey", passkey_id or ""),
            )  # fmt: skip
        case "new_codes" if own_factors:
            return Question(
                _FACTORS,
                gettext("Create new recovery codes?"),
                [
                    gettext(
                        "Your old codes stop working: %(count)s.", count=own_factors.recovery_codes
                    )
                ],
                gettext("Create new recovery codes"),
            )
    return None
