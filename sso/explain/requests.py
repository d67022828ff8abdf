"""Checks of scopes, parameters and groups."""

from sso.explain.case import Case, Explanation, command, described, sentences
from sso.flow import decision, scopes
from sso.flow.refusals import Cause
from sso.i18n import N_
from sso.i18n.message import Message, joined

AT_THE_APPLICATION = Message("Change the request in the settings or the code of the application.")


def dropped_scopes(case: Case) -> Explanation | None:
    names = scopes.split(case["dropped"])
    if not names or case.client is None:
        return None
    registered = scopes.split(case.client.scope)
    unknown_names = [name for name in names if name not in scopes.SCOPES]
    missing = [name for name in names if name not in (*unknown_names, *registered)]
    if case["error"]:
        now = Message(
            "None of the scopes asked for can be granted. By now all of them are registered."
        )
        why = N_("None of the scopes asked for can be granted: %(why)s.")
    else:
        now = Message(
            "Some of the scopes asked for are not granted. By now all of them are registered."
        )
        why = N_("Some of the scopes asked for are not granted: %(why)s.")
    parts = []
    if missing:
        listed = " ".join(missing)
        parts.append(Message("%(scopes)s not registered for the client", scopes=listed))
    if unknown_names:
        listed = " ".join(unknown_names)
        parts.append(Message("%(scopes)s unknown to this server", scopes=listed))
    if not parts:
        return Explanation(now, Message("Try again."))
    options = [option for name in missing for option in ("--add-scope", name)]
    fixes = []
    if unknown_names:
        fixes.append(Message("Remove what is unknown from the settings of the application."))
    if missing:
        listed = " ".join(missing)
        fixes.append(Message("If the application may have it, register %(scopes)s:", scopes=listed))
    return Explanation(
        Message(why, why=joined(N_("%(one)s, %(other)s"), parts)),
        sentences(*fixes),
        case.update(*options) if missing else None,
    )


def wider_scope(case: Case) -> Explanation | None:
    if not case["requested_scope"]:
        return None
    if case.cause == Cause.NOT_AVAILABLE:
        return Explanation(
            Message(
                "The exchange asks for %(requested)s; this token can be exchanged for %(granted)s "
                "at %(resource)s.",
                requested=case["requested_scope"],
                granted=case["granted_scope"] or Message("(none)"),
                resource=case["resource"],
            ),
            Message(
                "Leave scope out, or register the client for more of the API with %(option)s. A "
                "scope that both APIs have under one name is only given if the token has it.",
                option="--add-api",
            ),
        )
    return Explanation(
        Message(
            "The refresh asks for %(requested)s; granted was %(granted)s.",
            requested=case["requested_scope"],
            granted=case["granted_scope"],
        ),
        Message(
            "Leave scope out of the refresh, or send the user through the authorization endpoint "
            "for more."
        ),
    )


def hint(case: Case) -> Explanation | None:
    """Explain a refused `id_token_hint` by the claims that were stored."""
    if not case["hint"] and not any(case[f"hint_{claim}"] for claim in ("iss", "aud", "iat")):
        return None
    issuer, iat = case.issuer, case["hint_iat"]
    ahead = int(iat) - case.refusal.at.timestamp() if iat else 0
    if case["hint"]:
        cause = Message("The id_token_hint is no identity token: it is no JWT.")
    elif case["hint_iss"] != issuer:
        cause = Message(
            "The id_token_hint is of the issuer %(received)s, not %(expected)s.",
            received=case["hint_iss"] or Message("(none)"),
            expected=issuer,
        )
    elif case["client"] and case["hint_aud"] != case["client"]:
        cause = Message(
            "The id_token_hint was issued to another client, %(client_id)s.",
            client_id=case["hint_aud"],
        )
    elif ahead > 60:
        cause = Message(
            "The id_token_hint was issued %(seconds)s s in the future: the clocks of the servers "
            "differ, or its text has been changed.",
            seconds=round(ahead),
        )
    else:
        cause = Message(
            "The id_token_hint cannot be verified: its text has been changed, or its signing key "
            "was removed."
        )
    return Explanation(
        cause, Message("Make the application send the id_token that it got last for this client.")
    )


_PARAMETERS = {
    "request": Message(
        "Turn off signed requests at the application, or register the client for them: client "
        "update with %(option)s, and the application's public keys.",
        option="--request-object-alg",
    ),
    "request_uri": Message("Push the parameters themselves, without a request_uri among them."),
    "code_challenge_method": Message("Switch PKCE at the application from plain to S256."),
    "code_challenge": Message(
        "The client is registered with %(option)s: turn PKCE on, with S256.",
        option="--require-pkce",
    ),
    "state": Message("Make the application send a random state, and compare it on return."),
    "response_type": Message(
        "Set the application to the authorization code flow (response_type=code)."
    ),
}


def parameter(case: Case) -> Explanation | None:
    name, received = case["parameter"], case["sent"]
    if not name:
        return None
    cause = described(case)
    if received:
        cause = Message("%(description)s Received: %(sent)s", description=cause, sent=received)
    return Explanation(cause, _PARAMETERS.get(name, AT_THE_APPLICATION))


def not_a_member(case: Case) -> Explanation | None:
    client, user = case.client, case.user
    if case.cause not in (Cause.NOT_A_MEMBER, Cause.NO_LONGER_A_MEMBER) or client is None:
        return None
    person = user.email if user else Message("The user")
    groups = client.groups
    if not groups or (user and set(groups) & set(user.groups)):
        return Explanation(
            Message(
                "%(who)s was in none of the groups that may use the client, and may use it now.",
                who=person,
            ),
            Message("Let them sign in again."),
        )
    add = command("user", "update", user.email, "--add-group", groups[0]) if user else None
    return Explanation(
        Message(
            "%(who)s is in none of the groups that may use the client: %(groups)s.",
            who=person,
            groups=", ".join(groups),
        ),
        Message("If the person may use it, add them to one of these:")
        if groups[1:]
        else Message("If the person may use it, add them to it:"),
        add,
    )


_SILENT = {
    "login_required": (
        Message(
            "If the user is signed in, the browser sent no cookie: it sends none to a frame of "
            "another site. Otherwise make the application repeat the request without prompt=none."
        )
    ),
    "consent_required": (
        Message(
            "Make the application repeat the request without prompt=none. For an application of "
            "your own, %(option)s spares users the question.",
            option="--first-party",
        )
    ),
}


def silent(case: Case) -> Explanation | None:
    """Explain `prompt=none` for a request that needs a page (OIDC Core §3.1.2.6)."""
    if case["error"] not in decision.SILENT_ERRORS:
        return None
    fix = Message("Make the application repeat the request without prompt=none.")
    cause = described(case)
    is_about_factors = (
        case["error"] == "interaction_required" and case.cause is not Cause.MUST_ACCEPT_TERMS
    )
    if is_about_factors and case.client and case.client.require_mfa:
        cause = Message(
            "%(description)s The client is registered with %(option)s.",
            description=cause,
            option="--require-mfa",
        )
    return Explanation(cause, _SILENT.get(case["error"], fix))


def denied(case: Case) -> Explanation | None:
    if case["error"] != "access_denied" or not case["description"]:
        return None
    return Explanation(
        described(case), Message("There is nothing to fix: it was the person's decision.")
    )
