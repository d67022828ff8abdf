"""The decision table of the authorization endpoint, and what holds for all of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sso.flow.claims_parameter import ClaimsRequest
from sso.flow.decision import (
    Answer,
    AskConsent,
    Consent,
    Decision,
    Forbid,
    Policy,
    Refuse,
    SecondFactor,
    Session,
    SignIn,
    Why,
    decide,
)
from sso.flow.request import AuthorizationRequest

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=5)
SCOPE = "openid email"
REQUEST = AuthorizationRequest("c", "https://c.example/", "s", SCOPE, asked_at=NOW)
SESSION = Session("dana", auth_time=LONG_AGO, acr="1", groups=frozenset({"staff"}))
CONSENT = Consent(frozenset(SCOPE.split()), given_at=LONG_AGO)
SOON = NOW + timedelta(seconds=5)
RESUMED = replace(REQUEST, resumed=True)
FRESH = replace(SESSION, auth_time=SOON)
OPEN = Policy()


def asking(base: AuthorizationRequest = REQUEST, **more: object) -> AuthorizationRequest:
    values = {
        k: frozenset(v.split()) if k == "prompt" and isinstance(v, str) else v
        for k, v in more.items()
    }
    return replace(base, **values)  # type: ignore[arg-type]


Row = tuple[AuthorizationRequest, Session | None, Consent | None, Policy, object]
STAFF, OTHERS = Policy(groups=frozenset({"staff"})), Policy(groups=frozenset({"board"}))
FIRST = Policy(first_party=True)
NEEDED = frozenset(SCOPE.split())
PARTLY = Consent(frozenset({"openid"}), LONG_AGO)
UNTICKED = replace(PARTLY, declined=frozenset({"email"}))
ONLY_EMAIL = AskConsent(frozenset({"email"}), frozenset({"openid"}))
EMAIL_CLAIM = ClaimsRequest(userinfo=("email",))
OTHER_SUBJECT = ClaimsRequest(subjects=frozenset({"erin"}))
EITHER_SUBJECT = ClaimsRequest(subjects=frozenset({"erin", "dana"}))
ESSENTIAL_ACR = ClaimsRequest(acr_asked=True, acr_values=("2",), acr_essential=True)
ACR_1 = ClaimsRequest(acr_asked=True, acr_values=("1",), acr_essential=True)
UNKNOWN_ACR = ClaimsRequest(acr_asked=True, acr_values=("9",), acr_essential=True)
STRICT = Policy(require_mfa=True)
EQUIPPED = replace(SESSION, has_factor=True)
STRONG = replace(SESSION, acr="2")
VOLUNTARY_ACR = ClaimsRequest(acr_asked=True, acr_values=("2",))

TABLE: dict[str, Row] = {
    "nobody": (REQUEST, None, None, OPEN, SignIn(Why.NOBODY)),
    "nobody, silently": (asking(prompt="none"), None, None, OPEN, "login_required"),
    "signed in, no consent": (REQUEST, SESSION, None, OPEN, AskConsent(NEEDED)),
    "no consent, silently": (asking(prompt="none"), SESSION, None, OPEN, "consent_required"),
    "part of the consent": (REQUEST, SESSION, PARTLY, OPEN, ONLY_EMAIL),
    "the rest was unticked": (REQUEST, SESSION, UNTICKED, OPEN, Answer(frozenset({"email"}))),
    "unticked, but asked again": (
        asking(prompt="consent"), SESSION, UNTICKED, OPEN, AskConsent(NEEDED)),
    "all of it was unticked": (
        asking(scope="email"), SESSION, UNTICKED, OPEN, "access_denied"),
    "all there": (REQUEST, SESSION, CONSENT, OPEN, Answer()),
    "all there, silently": (asking(prompt="none"), SESSION, CONSENT, OPEN, Answer()),
    "first party": (REQUEST, SESSION, None, FIRST, Answer()),
    "first party, silently": (asking(prompt="none"), SESSION, None, FIRST, Answer()),
    "first party, consent": (
        asking(prompt="consent"), SESSION, None, FIRST, AskConsent(NEEDED)),
    "claims beyond the scope need consent": (
        asking(scope="openid", claims=EMAIL_CLAIM), SESSION, PARTLY, OPEN, ONLY_EMAIL),
    "login": (asking(prompt="login"), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "login, fresh link with a session later than it": (
        asking(prompt="login"), FRESH, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "login, resumed without a new sign-in": (
        asking(RESUMED, prompt="login"), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "login, done": (asking(RESUMED, prompt="login"), FRESH, CONSENT, OPEN, Answer()),
    "consent again": (asking(prompt="consent"), SESSION, CONSENT, OPEN, AskConsent(NEEDED)),
    "consent again, done": (
        asking(RESUMED, prompt="consent"), SESSION, replace(CONSENT, given_at=SOON), OPEN,
        Answer()),
    "consent again, fresh link with a consent later than it": (
        asking(prompt="consent"), SESSION, replace(CONSENT, given_at=SOON), OPEN,
        AskConsent(NEEDED)),
    "consent again, but to less": (
        asking(RESUMED, prompt="consent"), SESSION, replace(PARTLY, given_at=SOON), OPEN,
        ONLY_EMAIL),
    "consent again, the rest was unticked": (
        asking(RESUMED, prompt="consent"), SESSION, replace(UNTICKED, given_at=SOON), OPEN,
        Answer(frozenset({"email"}))),
    "first party, consent again, but to less": (
        asking(RESUMED, prompt="consent"), SESSION, replace(PARTLY, given_at=SOON), FIRST,
        ONLY_EMAIL),
    "login and consent": (
        asking(prompt="login consent"), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "select_account": (
        asking(prompt="select_account"), SESSION, CONSENT, OPEN, SignIn(Why.SELECT)),
    "select_account, chosen": (
        asking(RESUMED, prompt="select_account", selected="dana"), SESSION, CONSENT, OPEN,
        Answer()),
    "select_account, another chosen": (
        asking(RESUMED, prompt="select_account", selected="erin"), SESSION, CONSENT, OPEN,
        SignIn(Why.SELECT)),
    "select_account, signed in anew": (
        asking(RESUMED, prompt="select_account"), FRESH, CONSENT, OPEN, Answer()),
    "max_age kept": (asking(max_age=18_100), SESSION, CONSENT, OPEN, Answer()),
    "max_age exceeded": (asking(max_age=60), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "max_age exceeded, silently": (
        asking(max_age=60, prompt="none"), SESSION, CONSENT, OPEN, "login_required"),
    "max_age 0": (
        asking(max_age=0), replace(SESSION, auth_time=NOW), CONSENT, OPEN, SignIn(Why.AGAIN)),
    "max_age 0, done": (asking(RESUMED, max_age=0), FRESH, CONSENT, OPEN, Answer()),
    "hint of this user": (asking(hinted_subject="dana"), SESSION, CONSENT, OPEN, Answer()),
    "hint of another": (
        asking(hinted_subject="erin"), SESSION, CONSENT, OPEN, SignIn(Why.SOMEBODY_ELSE)),
    "hint of another, silently": (
        asking(hinted_subject="erin", prompt="none"), SESSION, CONSENT, OPEN, "login_required"),
    "claims: sub of another": (
        asking(claims=OTHER_SUBJECT), SESSION, CONSENT, OPEN, SignIn(Why.SOMEBODY_ELSE)),
    "claims: sub of either": (asking(claims=EITHER_SUBJECT), SESSION, CONSENT, OPEN, Answer()),
    "a member": (REQUEST, SESSION, CONSENT, STAFF, Answer()),
    "no member": (REQUEST, SESSION, CONSENT, OTHERS, Forbid()),
    "no member, silently": (asking(prompt="none"), SESSION, CONSENT, OTHERS, "access_denied"),
    "denied": (asking(RESUMED, denied=True), SESSION, CONSENT, OPEN, "access_denied"),
    "denied, nobody": (asking(RESUMED, denied=True), None, None, OPEN, "access_denied"),
    "acr voluntary": (asking(claims=VOLUNTARY_ACR), SESSION, CONSENT, OPEN, Answer()),
    "acr voluntary, with a factor": (
        asking(claims=VOLUNTARY_ACR), EQUIPPED, CONSENT, OPEN, SecondFactor()),
    "acr voluntary, silently": (
        asking(claims=VOLUNTARY_ACR, prompt="none"), EQUIPPED, CONSENT, OPEN, Answer()),
    "acr_values 2": (asking(acr_values=("2",)), EQUIPPED, CONSENT, OPEN, SecondFactor()),
    "acr_values 2 1": (asking(acr_values=("x", "2", "1")), EQUIPPED, CONSENT, OPEN, SecondFactor()),
    "acr_values 1 2": (asking(acr_values=("1", "2")), EQUIPPED, CONSENT, OPEN, Answer()),
    "acr_values 2, reached": (asking(acr_values=("2",)), STRONG, CONSENT, OPEN, Answer()),
    "acr_values 2, no factor": (asking(acr_values=("2",)), SESSION, CONSENT, OPEN, Answer()),
    "acr essential, no factor": (
        asking(claims=ESSENTIAL_ACR), SESSION, CONSENT, OPEN, SecondFactor(enrol=True)),
    "acr essential": (asking(claims=ESSENTIAL_ACR), EQUIPPED, CONSENT, OPEN, SecondFactor()),
    "acr essential, reached": (asking(claims=ESSENTIAL_ACR), STRONG, CONSENT, OPEN, Answer()),
    "acr essential, silently": (
        asking(claims=ESSENTIAL_ACR, prompt="none"), EQUIPPED, CONSENT, OPEN,
        "interaction_required"),
    "acr essential, unknown": (
        asking(claims=UNKNOWN_ACR), STRONG, CONSENT, OPEN, "access_denied"),
    "acr essential 1, with two": (asking(claims=ACR_1), STRONG, CONSENT, OPEN, Answer()),
    "client requires": (REQUEST, EQUIPPED, None, STRICT, SecondFactor()),
    "client requires, no factor": (REQUEST, SESSION, None, STRICT, SecondFactor(enrol=True)),
    "client requires, reached": (REQUEST, STRONG, CONSENT, STRICT, Answer()),
    "client requires, silently": (
        asking(prompt="none"), SESSION, CONSENT, STRICT, "interaction_required"),
    "client requires, but no member": (
        REQUEST, SESSION, CONSENT, Policy(groups=frozenset({"board"}), require_mfa=True),
        Forbid()),
    "sign in first, then the second factor": (
        asking(prompt="login"), EQUIPPED, CONSENT, STRICT, SignIn(Why.AGAIN)),
}  # fmt: skip


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_the_table(row: Row) -> None:
    request, session, consent, policy, wanted = row
    found = decide(request, session, consent, policy, SOON)
    if isinstance(wanted, str):
        assert isinstance(found, Refuse)
        assert found.error == wanted
    else:
        assert found == wanted


PROMPTS = st.one_of(
    st.just(frozenset({"none"})),
    st.frozensets(st.sampled_from(["login", "consent", "select_account"])),
)
USERS = st.sampled_from(["dana", "erin"])
TIMES = st.integers(-20_000, 20).map(lambda seconds: NOW + timedelta(seconds=seconds))
REQUESTS = st.builds(
    AuthorizationRequest,
    client_id=st.just("c"),
    redirect_uri=st.just("https://c.example/"),
    state=st.just("s"),
    scope=st.sampled_from(["openid", "openid email", "profile", "openid offline_access"]),
    asked_at=TIMES,
    prompt=PROMPTS,
    max_age=st.none() | st.sampled_from([0, 1, 60, 10_000]),
    hinted_subject=st.none() | USERS,
    claims=st.sampled_from([ClaimsRequest(), EMAIL_CLAIM, OTHER_SUBJECT, ESSENTIAL_ACR]),
    acr_values=st.sampled_from([(), ("2",), ("1", "2"), ("x",)]),
    resumed=st.booleans(),
    selected=st.none() | USERS,
    denied=st.booleans(),
)
GROUPS = st.frozensets(st.sampled_from(["staff", "board"]))
SESSIONS = st.none() | st.builds(
    Session,
    user_id=USERS,
    auth_time=TIMES,
    acr=st.sampled_from("12"),
    groups=GROUPS,
    has_factor=st.booleans(),
)
SCOPES = st.frozensets(st.sampled_from(["openid", "email", "profile", "offline_access"]))
CONSENTS = st.none() | st.builds(Consent, scope=SCOPES, given_at=TIMES, declined=SCOPES)
POLICIES = st.builds(Policy, first_party=st.booleans(), groups=GROUPS, require_mfa=st.booleans())


@given(REQUESTS, SESSIONS, CONSENTS, POLICIES)
def test_prompt_none_never_shows_a_page(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
) -> None:
    silent = replace(request, prompt=frozenset({"none"}))
    assert isinstance(decide(silent, session, consent, policy, NOW), Refuse | Answer)


@given(REQUESTS, SESSIONS, CONSENTS, POLICIES)
@example(  # consent after the request, but to nothing that it asks for
    asking(RESUMED, prompt="login consent", asked_at=NOW - timedelta(seconds=1)),
    replace(SESSION, auth_time=NOW),
    Consent(frozenset(), given_at=NOW),
    OPEN,
)
def test_no_answer_without_sign_in_membership_and_consent(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
) -> None:
    found = decide(request, session, consent, policy, NOW)
    if not isinstance(found, Answer):
        return
    assert session is not None
    assert not request.denied
    assert not policy.groups or policy.groups & session.groups
    assert request.hinted_subject in (None, session.user_id)
    assert session.user_id in (request.claims.subjects or {session.user_id})
    if policy.require_mfa or request.claims == ESSENTIAL_ACR:
        assert session.acr == "2"
    declined = consent.declined if consent else frozenset()
    assert found.withheld == declined & request.scopes_to_consent
    assert frozenset(request.scope.split()) - found.withheld
    if not policy.first_party or "consent" in request.prompt:
        assert consent is not None
        assert request.scopes_to_consent - found.withheld <= consent.scope
    since = request.resumed and session.auth_time > request.asked_at
    if "login" in request.prompt:
        assert since
    if request.max_age is not None and not since:
        assert request.max_age > 0
        assert (NOW - session.auth_time).total_seconds() <= request.max_age
    if "select_account" in request.prompt:
        assert since or request.selected == session.user_id
    if "consent" in request.prompt:
        assert consent is not None
        assert request.resumed
        assert consent.given_at > request.asked_at


@given(REQUESTS, SESSIONS, CONSENTS, POLICIES)
def test_doing_what_is_asked_leads_to_an_end(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
) -> None:
    """Nobody is asked for the same thing twice, and nobody goes round in circles."""
    now, seen = NOW + timedelta(minutes=1), list[Decision]()
    wanted = request.claims.subjects | {request.hinted_subject or "dana"}
    if len(wanted) > 1:
        return  # no user can meet a hint and another subject at once
    (acceptable,) = wanted
    for _ in range(5):
        step = decide(request, session, consent, policy, now)
        assert step not in seen
        seen.append(step)
        request = replace(request, resumed=True)
        now += timedelta(seconds=1)
        if isinstance(step, SignIn):
            session = Session(acceptable, now, "1", frozenset({"staff"}))
            consent = None
        elif isinstance(step, SecondFactor):
            assert session is not None
            session = replace(session, acr="2", has_factor=True)
        elif isinstance(step, AskConsent):
            consent = Consent(step.scopes, now)
        else:
            return
        now += timedelta(seconds=1)
    raise AssertionError(seen)
