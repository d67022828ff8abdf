"""Scopes, parameters, people, forms and addresses."""

from urllib.parse import urlsplit

from sso.audit.events import Event
from sso.explain.case import Case, Explanation, command
from sso.flow import decision, narrowing, scopes

_AT_THE_APPLICATION = "Change the request in the settings or the code of the application."


def dropped_scopes(case: Case) -> Explanation | None:
    names = scopes.split(case["dropped"])
    if not names or case.client is None:
        return None
    registered = scopes.split(case.client.scope)
    unknown = [name for name in names if name not in scopes.SCOPES]
    missing = [name for name in names if name not in (*unknown, *registered)]
    parts = [f"{' '.join(missing)} not registered for the client"] if missing else []
    parts += [f"{' '.join(unknown)} unknown to this server"] if unknown else []
    if case["error"]:
        cause = "None of the scopes asked for can be granted"
    else:
        cause = "Some of the scopes asked for are not granted"
    if not parts:
        return Explanation(f"{cause}. By now all of them are registered.", "Try again.")
    options = [option for name in missing for option in ("--add-scope", name)]
    fix = "Remove what is unknown from the settings of the application." if unknown else ""
    if missing:
        fix = f"{fix} If the application may have it, register {' '.join(missing)}:".strip()
    return Explanation(
        f"{cause}: {', '.join(parts)}.", fix, case.update(*options) if missing else None
    )


def wider_scope(case: Case) -> Explanation | None:
    if not case["requested_scope"]:
        return None
    return Explanation(
        f"The refresh asks for {case['requested_scope']}; granted was {case['granted_scope']}.",
        "Leave scope out of the refresh, or send the user through the authorization endpoint for "
        "more.",
    )


def hint(case: Case) -> Explanation | None:
    """An `id_token_hint`, of whose text only some claims were kept."""
    if not case["hint"] and not any(case[f"hint_{one}"] for one in ("iss", "aud", "iat")):
        return None
    issuer, iat = case.settings.issuer, case["hint_iat"]
    ahead = int(iat) - case.refusal.at.timestamp() if iat else 0
    if case["hint"]:
        cause = "The id_token_hint is no identity token: it is no JWT."
    elif case["hint_iss"] != issuer:
        cause = f"The id_token_hint is of the issuer {case['hint_iss'] or '(none)'}, not {issuer}."
    elif case["client"] and case["hint_aud"] != case["client"]:
        cause = f"The id_token_hint was issued to another client, {case['hint_aud']}."
    elif ahead > 60:
        cause = (
            f"The id_token_hint was issued {round(ahead)} s in the future: the clocks of the "
            "servers differ, or its text has been changed."
        )
    else:
        cause = (
            "The id_token_hint cannot be verified: its text has been changed, or its signing key "
            "was removed."
        )
    return Explanation(
        cause, "Make the application send the id_token that it got last for this client."
    )


_PARAMETERS = {
    "request": "Turn off signed requests at the application, or register the client for them: "
    "client update with --request-object-alg, and the application's public keys.",
    "request_uri": "Push the parameters themselves, without a request_uri among them.",
    "code_challenge_method": "Switch PKCE at the application from plain to S256.",
    "code_challenge": "The client is registered with --require-pkce: turn PKCE on, with S256.",
    "state": "Make the application send a random state, and compare it on return.",
    "response_type": "Set the application to the authorization code flow (response_type=code).",
}


def parameter(case: Case) -> Explanation | None:
    name, sent = case["parameter"], case["sent"]
    if not name:
        return None
    cause = case["description"] + (f" Received: {sent}" if sent else "")
    return Explanation(cause, _PARAMETERS.get(name, _AT_THE_APPLICATION))


def not_a_member(case: Case) -> Explanation | None:
    client, user = case.client, case.user
    told = (decision.NOT_A_MEMBER, narrowing.NOT_A_MEMBER)
    if case["description"] not in told or client is None:
        return None
    who = user.email if user else "The user"
    groups = client.groups
    if not groups or (user and set(groups) & set(user.groups)):
        return Explanation(
            f"{who} was in none of the groups that may use the client, and may use it now.",
            "Let them sign in again.",
        )
    add = command("user", "update", user.email, "--add-group", groups[0]) if user else None
    return Explanation(
        f"{who} is in none of the groups that may use the client: {', '.join(groups)}.",
        f"If the person may use it, add them to {'one of these' if groups[1:] else 'it'}:",
        add,
    )


_SILENT = {
    "login_required": (
        "If the user is signed in, the browser sent no cookie: it sends none to a frame of another "
        "site. Otherwise make the application repeat the request without prompt=none."
    ),
    "consent_required": (
        "Make the application repeat the request without prompt=none. For an application of your "
        "own, --first-party spares users the question."
    ),
}


def silent(case: Case) -> Explanation | None:
    """`prompt=none`, where a page would be needed (OIDC Core §3.1.2.6)."""
    if "prompt=none" not in case["description"] or case["parameter"]:
        return None
    fix = "Make the application repeat the request without prompt=none."
    cause = case["description"]
    if case["error"] == "interaction_required" and case.client and case.client.require_mfa:
        cause += " The client is registered with --require-mfa."
    return Explanation(cause, _SILENT.get(case["error"], fix))


def denied(case: Case) -> Explanation | None:
    if case["error"] != "access_denied" or not case["description"]:
        return None
    return Explanation(case["description"], "There is nothing to fix: the person decided so.")


def form_without_token(case: Case) -> Explanation | None:
    """Why the cookie that belongs to the form's token did not come."""
    if case.refusal.name != Event.CSRF_REFUSED:
        return None
    base = urlsplit(case.settings.base_url)
    if case.details.get("has_cookie"):
        return Explanation(
            "The form is older than the present sign-in of its browser, or another site sent it.",
            "Nothing, if it was left open in another tab: the page was shown again.",
        )
    if base.scheme == "https" and case["scheme"] == "http":
        return Explanation(
            "The page was opened by http, where browsers do not send the cookie.",
            "Let the proxy redirect http to https. If people do use https, let it send "
            "X-Forwarded-Proto, and set SSO_TRUSTED_PROXIES to the number of proxies.",
        )
    if case["host"]:
        return Explanation(
            f"The page was opened at {case['host']}; SSO_BASE_URL is {case.settings.base_url}.",
            "Redirect that name to the one of SSO_BASE_URL, or correct SSO_BASE_URL.",
        )
    if case["fetch_dest"] in ("iframe", "frame") or case["fetch_site"] == "cross-site":
        return Explanation(
            "The page was used within a page of another site, where browsers do not send the "
            "cookie (SameSite=Lax).",
            "Let the application redirect the whole window instead of a frame.",
        )
    return Explanation(
        "The browser sent no cookie: it blocks them, or they were deleted meanwhile.",
        "Let the person allow cookies for this site.",
    )


def wrong_address(case: Case) -> Explanation | None:
    meant = case["meant"]
    if not meant:
        return None
    base = case.settings.base_url
    origin = base.removesuffix(case.settings.base_path)
    asked = f"{case['scheme'] or urlsplit(base).scheme}://{case['host'] or urlsplit(base).netloc}"
    return Explanation(
        f"There is nothing at {asked}{case['path']}. It looks like {origin}{meant}.",
        f"Set the issuer of the application to {case.settings.issuer}; most then find all "
        "addresses by themselves.",
    )


# Pages about nothing but themselves.
_PAGES = {
    403: ("The page is for somebody else who is, or is not, signed in.", "Nothing."),
    404: ("There is no page at this address.", "Correct the link that leads there."),
    410: ("The link from a mail was used, has expired, or is cut.", "Ask for a new link."),
    413: ("The request is longer than this server takes.", _AT_THE_APPLICATION),
    429: ("There were too many tries from this network or for this account.", "Wait."),
    500: ("An error of the server.", "Look for the id in the log, and report what it says."),
    503: ("The server was overloaded or without its database.", "Look for the id in the log."),
}


def page(case: Case) -> Explanation | None:
    found = _PAGES.get(int(case["status"] or 0))
    if found is None and case["page"] and not case["error"]:
        return Explanation(
            "The page had been open for too long, or its address was cut.",
            "Let the person start again from the application.",
        )
    return Explanation(*found) if found and not case.reason else None


def anything_else(case: Case) -> Explanation:
    return Explanation(case["description"] or case["page"] or case.refusal.name,
                       _AT_THE_APPLICATION)  # fmt: skip
