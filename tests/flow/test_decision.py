"""The decision table of the authorization endpoint, and what holds for all of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sso.flow.decision import FRESH as FRESH_FOR
from sso.flow.decision import (
    AcceptTerms,
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
from sso.flow.refusals import Cause, describe
from sso.flow.request import AuthorizationRequest, ClaimsRequest

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=5)
SCOPE = "openid email"
REQUEST = AuthorizationRequest("c", "https://c.example/", "s", SCOPE, asked_at=NOW)
SESSION = Session("dana", auth_time=LONG_AGO, acr="1", groups=frozenset({"staff"}))
CONSENT = Consent(frozenset(SCOPE.split()), given_at=LONG_AGO)
SOON = NOW + timedelta(seconds=5)
RESUMED = replace(REQUEST, resumed=True)
FRESH = replace(SESSION, auth_time=SOON)
LATELY = replace(CONSENT, given_at=SOON)
OLDER = replace(RESUMED, asked_at=LONG_AGO)
SIGNED_IN = replace(RESUMED, signed_in_at=SOON)
CONSENTED = replace(RESUMED, consented_at=SOON)
AT_THE_LIMIT, TOO_LATE = SOON - FRESH_FOR, SOON - FRESH_FOR - timedelta(microseconds=1)
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
APIS = ("https://docs.example", "https://maps.example")
AT_FIRST = asking(resources=APIS[:1], scope=f"{SCOPE} {APIS[0]}#")
AT_BOTH = replace(AT_FIRST, resources=APIS)
MEMBERS = dict.fromkeys(APIS, frozenset({"staff", "board"}))
AT_APIS = Policy(first_party=True, api_groups=MEMBERS)
NOT_AT_FIRST = replace(AT_APIS, api_groups={APIS[0]: frozenset({"board"})})
NOT_AT_SECOND = replace(AT_APIS, api_groups={**MEMBERS, APIS[1]: frozenset({"board"})})
NEEDED = frozenset(SCOPE.split())
PARTLY = Consent(frozenset({"openid"}), LONG_AGO)
UNTICKED = replace(PARTLY, declined=frozenset({"email"}))
ONCE = asking(scope=f"{SCOPE} offline_access")
LASTING = Consent(frozenset(f"{SCOPE} offline_access".split()), LONG_AGO)
ONLY_EMAIL = AskConsent(frozenset({"email"}), frozenset({"openid"}))
EMAIL_CLAIM = ClaimsRequest(userinfo=("email",))
OTHER_SUBJECT = ClaimsRequest(subjects=frozenset({"erin"}))
OTHER_SUBJECTS = ClaimsRequest(subjects=frozenset({"erin", "finn"}))
EITHER_SUBJECT = ClaimsRequest(subjects=frozenset({"erin", "dana"}))
ESSENTIAL_ACR = ClaimsRequest(acr_asked=True, acr_values=("2",), acr_essential=True)
ACR_1 = ClaimsRequest(acr_asked=True, acr_values=("1",), acr_essential=True)
UNKNOWN_ACR = ClaimsRequest(acr_asked=True, acr_values=("9",), acr_essential=True)
STRICT = Policy(require_mfa=True)
POSED_AS = Policy(ask_each_time=True)
OURS_POSED_AS = Policy(first_party=True, ask_each_time=True)
EQUIPPED = replace(SESSION, has_factor=True)
WITH_TERMS = replace(OPEN, terms_version="2")
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
    "for once": (
        asking(ONCE, once=True), SESSION, LASTING, OPEN, Answer(frozenset({"offline_access"}))),
    "for longer": (ONCE, SESSION, LASTING, OPEN, Answer()),
    "for once, the rest was unticked": (
        asking(ONCE, once=True), SESSION, replace(LASTING, declined=frozenset({"email"})), OPEN,
        Answer(frozenset({"email", "offline_access"}))),
    "for once, nothing that lasts": (
        asking(once=True), SESSION, CONSENT, OPEN, Answer()),
    "all of it was unticked": (
        asking(scope="email"), SESSION, UNTICKED, OPEN, "access_denied"),
    "all there": (REQUEST, SESSION, CONSENT, OPEN, Answer()),
    "all there, silently": (asking(prompt="none"), SESSION, CONSENT, OPEN, Answer()),
    "asked each time": (REQUEST, SESSION, CONSENT, POSED_AS, AskConsent(NEEDED)),
    "asked each time, silently": (
        asking(prompt="none"), SESSION, CONSENT, POSED_AS, "consent_required"),
    "asked each time, done": (CONSENTED, SESSION, LATELY, POSED_AS, Answer(uses=SOON)),
    "asked each time, done for another request": (
        RESUMED, SESSION, LATELY, POSED_AS, AskConsent(NEEDED)),
    "asked each time, done, and used": (
        CONSENTED, replace(SESSION, decisions_used_until=SOON), LATELY, POSED_AS,
        AskConsent(NEEDED)),
    "asked each time, first party": (
        REQUEST, SESSION, CONSENT, OURS_POSED_AS, AskConsent(NEEDED)),
    "asked each time, first party, silently": (
        asking(prompt="none"), SESSION, None, OURS_POSED_AS, "consent_required"),
    "terms, none accepted": (REQUEST, SESSION, CONSENT, WITH_TERMS, AcceptTerms("2")),
    "terms, an older version": (
        REQUEST, replace(SESSION, terms_version="1"), CONSENT, WITH_TERMS, AcceptTerms("2")),
    "terms, accepted": (
        REQUEST, replace(SESSION, terms_version="2"), CONSENT, WITH_TERMS, Answer()),
    "terms before the consent": (REQUEST, SESSION, None, WITH_TERMS, AcceptTerms("2")),
    "terms after the second factor": (
        REQUEST, EQUIPPED, CONSENT, replace(WITH_TERMS, require_mfa=True), SecondFactor()),
    "terms of a first party": (
        REQUEST, SESSION, None, replace(FIRST, terms_version="2"), AcceptTerms("2")),
    "terms, silently": (
        asking(prompt="none"), SESSION, CONSENT, WITH_TERMS, "interaction_required"),
    "terms, not a member": (
        REQUEST, SESSION, CONSENT, replace(OTHERS, terms_version="2"), Forbid()),
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
        asking(SIGNED_IN, prompt="login"), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "login, done": (asking(SIGNED_IN, prompt="login"), FRESH, CONSENT, OPEN, Answer(uses=SOON)),
    "login, done for another request": (
        asking(RESUMED, prompt="login"), FRESH, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "login, done for it, and then for another": (
        asking(RESUMED, prompt="login", signed_in_at=NOW + timedelta(seconds=1)), FRESH, CONSENT,
        OPEN, SignIn(Why.AGAIN)),
    "login, done before": (
        asking(SIGNED_IN, prompt="login"), replace(FRESH, decisions_used_until=SOON), CONSENT, OPEN,
        SignIn(Why.AGAIN)),
    "login, done again since": (
        asking(SIGNED_IN, prompt="login"), replace(FRESH, decisions_used_until=NOW), CONSENT, OPEN,
        Answer(uses=SOON)),
    "login, just in time": (
        asking(OLDER, prompt="login", signed_in_at=AT_THE_LIMIT),
        replace(SESSION, auth_time=AT_THE_LIMIT), CONSENT, OPEN,
        Answer(uses=AT_THE_LIMIT)),
    "login, done long ago": (
        asking(OLDER, prompt="login", signed_in_at=TOO_LATE),
        replace(SESSION, auth_time=TOO_LATE), CONSENT, OPEN, SignIn(Why.AGAIN)),
    "no demand, a sign-in used before": (
        RESUMED, replace(FRESH, decisions_used_until=SOON), CONSENT, OPEN, Answer()),
    "consent again": (asking(prompt="consent"), SESSION, CONSENT, OPEN, AskConsent(NEEDED)),
    "consent again, done": (
        asking(CONSENTED, prompt="consent"), SESSION, LATELY, OPEN, Answer(uses=SOON)),
    "consent again, done for another request": (
        asking(RESUMED, prompt="consent"), SESSION, LATELY, OPEN, AskConsent(NEEDED)),
    "consent again, fresh link with a consent later than it": (
        asking(prompt="consent"), SESSION, replace(CONSENT, given_at=SOON), OPEN,
        AskConsent(NEEDED)),
    "consent again, but to less": (
        asking(CONSENTED, prompt="consent"), SESSION, replace(PARTLY, given_at=SOON), OPEN,
        ONLY_EMAIL),
    "consent again, the rest was unticked": (
        asking(CONSENTED, prompt="consent"), SESSION, replace(UNTICKED, given_at=SOON), OPEN,
        Answer(frozenset({"email"}), SOON)),
    "first party, consent again, but to less": (
        asking(CONSENTED, prompt="consent"), SESSION, replace(PARTLY, given_at=SOON), FIRST,
        ONLY_EMAIL),
    "consent again, done before": (
        asking(CONSENTED, prompt="consent"), replace(SESSION, decisions_used_until=SOON), LATELY,
        OPEN, AskConsent(NEEDED)),
    "consent again, done long ago": (
        asking(OLDER, prompt="consent", consented_at=TOO_LATE), SESSION,
        replace(CONSENT, given_at=TOO_LATE), OPEN, AskConsent(NEEDED)),
    "login and consent, done": (
        asking(CONSENTED, prompt="login consent", signed_in_at=NOW + timedelta(seconds=1)),
        replace(SESSION, auth_time=NOW + timedelta(seconds=1)), LATELY, OPEN, Answer(uses=SOON)),
    "login and consent, signed in last": (
        asking(SIGNED_IN, prompt="login consent", consented_at=NOW + timedelta(seconds=1)), FRESH,
        replace(CONSENT, given_at=NOW + timedelta(seconds=1)), OPEN, Answer(uses=SOON)),
    "login and consent": (
        asking(prompt="login consent"), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "select_account": (
        asking(prompt="select_account"), SESSION, CONSENT, OPEN, SignIn(Why.SELECT)),
    "select_account, chosen": (
        asking(RESUMED, prompt="select_account", selected="dana", selected_at=SOON), SESSION,
        CONSENT, OPEN, Answer(uses=SOON)),
    "select_account, another chosen": (
        asking(RESUMED, prompt="select_account", selected="erin", selected_at=SOON), SESSION,
        CONSENT, OPEN, SignIn(Why.SELECT)),
    "select_account, chosen before": (
        asking(RESUMED, prompt="select_account", selected="dana", selected_at=SOON),
        replace(SESSION, decisions_used_until=SOON), CONSENT, OPEN, SignIn(Why.SELECT)),
    "select_account, chosen long ago": (
        asking(OLDER, prompt="select_account", selected="dana", selected_at=TOO_LATE), SESSION,
        CONSENT, OPEN, SignIn(Why.SELECT)),
    "select_account, chosen at no time": (
        asking(RESUMED, prompt="select_account", selected="dana"), SESSION, CONSENT, OPEN,
        SignIn(Why.SELECT)),
    "select_account, signed in for another request": (
        asking(RESUMED, prompt="select_account"), FRESH, CONSENT, OPEN, SignIn(Why.SELECT)),
    "select_account, signed in again": (
        asking(SIGNED_IN, prompt="select_account"), FRESH, CONSENT, OPEN, Answer(uses=SOON)),
    "max_age kept": (asking(max_age=18_100), SESSION, CONSENT, OPEN, Answer()),
    "max_age kept, signed in for it": (
        asking(SIGNED_IN, max_age=60), FRESH, CONSENT, OPEN, Answer(uses=SOON)),
    "max_age exceeded": (asking(max_age=60), SESSION, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "max_age exceeded, silently": (
        asking(max_age=60, prompt="none"), SESSION, CONSENT, OPEN, "login_required"),
    "max_age 0": (
        asking(max_age=0), replace(SESSION, auth_time=NOW), CONSENT, OPEN, SignIn(Why.AGAIN)),
    "max_age 0, done": (asking(SIGNED_IN, max_age=0), FRESH, CONSENT, OPEN, Answer(uses=SOON)),
    "max_age 0, done for another request": (
        asking(RESUMED, max_age=0), FRESH, CONSENT, OPEN, SignIn(Why.AGAIN)),
    "max_age 0, done before": (
        asking(SIGNED_IN, max_age=0), replace(FRESH, decisions_used_until=SOON), CONSENT, OPEN,
        SignIn(Why.AGAIN)),
    "max_age 0, done long ago": (
        asking(OLDER, max_age=0, signed_in_at=TOO_LATE),
        replace(SESSION, auth_time=TOO_LATE), CONSENT, OPEN, SignIn(Why.AGAIN)),
    "max_age exceeded by a slow consent": (
        asking(OLDER, max_age=1, signed_in_at=AT_THE_LIMIT),
        replace(SESSION, auth_time=AT_THE_LIMIT), CONSENT, OPEN, Answer(uses=AT_THE_LIMIT)),
    "max_age kept, a sign-in used before": (
        asking(SIGNED_IN, max_age=60), replace(FRESH, decisions_used_until=SOON), CONSENT, OPEN,
        Answer()),
    "hint of this user": (asking(hinted_subject="dana"), SESSION, CONSENT, OPEN, Answer()),
    "hint of another": (
        asking(hinted_subject="erin"), SESSION, CONSENT, OPEN, SignIn(Why.SOMEBODY_ELSE)),
    "hint of another, silently": (
        asking(hinted_subject="erin", prompt="none"), SESSION, CONSENT, OPEN, "login_required"),
    "claims: sub of another": (
        asking(claims=OTHER_SUBJECT), SESSION, CONSENT, OPEN, SignIn(Why.SOMEBODY_ELSE)),
    "claims: sub of two others": (
        asking(claims=OTHER_SUBJECTS), SESSION, CONSENT, OPEN, SignIn(Why.SOMEBODY_ELSE)),
    "claims: sub of either": (asking(claims=EITHER_SUBJECT), SESSION, CONSENT, OPEN, Answer()),
    "a member": (REQUEST, SESSION, CONSENT, STAFF, Answer()),
    "no member": (REQUEST, SESSION, CONSENT, OTHERS, Forbid()),
    "no member, silently": (asking(prompt="none"), SESSION, CONSENT, OTHERS, "access_denied"),
    "a member, at both APIs": (AT_BOTH, SESSION, CONSENT, AT_APIS, Answer()),
    "no member at the first API": (AT_BOTH, SESSION, CONSENT, NOT_AT_FIRST, Forbid(APIS[0])),
    "no member at the second API": (AT_BOTH, SESSION, CONSENT, NOT_AT_SECOND, Forbid(APIS[1])),
    "no member at an API that is not asked for": (
        AT_FIRST, SESSION, CONSENT, NOT_AT_SECOND, Answer()),
    "no member at the second API, silently": (
        asking(AT_BOTH, prompt="none"), SESSION, CONSENT, NOT_AT_SECOND, "access_denied"),
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


SILENT = asking(prompt="none")
USERS_NO = "The user refused."
NOT_A_MEMBER = "The user is not in a group that may use this client."
# What the client is told must be the cause, and no other.
DESCRIPTIONS: dict[str, Row] = {
    "the user's own no": (
        asking(RESUMED, denied=True), SESSION, CONSENT, OPEN, USERS_NO),
    "the user's own no, then signed out": (
        asking(RESUMED, denied=True), None, None, OPEN, USERS_NO),
    "the user's own no, then out of the group": (
        asking(RESUMED, denied=True), SESSION, CONSENT, OTHERS, USERS_NO),
    "back from the page about the group": (
        asking(RESUMED, turned_away=True), SESSION, None, OTHERS, NOT_A_MEMBER),
    "back from it, signed out meanwhile": (
        asking(RESUMED, turned_away=True), None, None, OTHERS, NOT_A_MEMBER),
    "no member, silently": (SILENT, SESSION, CONSENT, OTHERS, NOT_A_MEMBER),
    "nobody, silently": (
        SILENT, None, None, OPEN, "The user has to sign in, and prompt=none forbids it."),
    "another user, silently": (
        asking(SILENT, hinted_subject="erin"), SESSION, CONSENT, OPEN,
        "Another user is signed in than the request names, and prompt=none forbids a sign-in."),
    "too old, silently": (
        asking(SILENT, max_age=60), SESSION, CONSENT, OPEN,
        "The sign-in is older than max_age allows, and prompt=none forbids a new one."),
    "no factor set up, silently": (
        SILENT, SESSION, CONSENT, STRICT,
        "The user has to set up a second factor, and prompt=none forbids it."),
    "a factor to show, silently": (
        SILENT, EQUIPPED, CONSENT, STRICT,
        "The user has to show a second factor, and prompt=none forbids it."),
    "no consent, silently": (
        SILENT, SESSION, None, OPEN, "The user has to consent, and prompt=none forbids it."),
}  # fmt: skip


@pytest.mark.parametrize("row", DESCRIPTIONS.values(), ids=DESCRIPTIONS.keys())
def test_a_refusal_tells_its_cause(row: Row) -> None:
    request, session, consent, policy, description = row
    found = decide(request, session, consent, policy, SOON)
    assert isinstance(found, Refuse)
    assert found.description == description


def test_who_was_turned_away_and_is_a_member_now_goes_on() -> None:
    """What the page said is judged again: the operator may have added the person meanwhile."""
    back = asking(RESUMED, turned_away=True)
    assert decide(back, SESSION, CONSENT, STAFF, SOON) == Answer()
    assert decide(back, SESSION, None, STAFF, SOON) == AskConsent(NEEDED)
    assert decide(back, SESSION, CONSENT, OTHERS, SOON) == Refuse(
        "access_denied", describe(Cause.NOT_A_MEMBER)
    )


PROMPTS = st.one_of(
    st.just(frozenset({"none"})),
    st.frozensets(st.sampled_from(["login", "consent", "select_account"])),
)
USERS = st.sampled_from(["dana", "erin"])
# Few, so that two of them are often the same one.
TIMES = st.sampled_from([-20_000, -5000, -601, -600, -61, -60, -2, -1, 0, 20]).map(
    lambda seconds: NOW + timedelta(seconds=seconds)
)
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
    signed_in_at=st.none() | TIMES,
    consented_at=st.none() | TIMES,
    selected=st.none() | USERS,
    selected_at=st.none() | TIMES,
    denied=st.booleans(),
    turned_away=st.booleans(),
)
GROUPS = st.frozensets(st.sampled_from(["staff", "board"]))
SESSIONS = st.none() | st.builds(
    Session,
    user_id=USERS,
    auth_time=TIMES,
    acr=st.sampled_from("12"),
    groups=GROUPS,
    has_factor=st.booleans(),
    decisions_used_until=st.none() | TIMES,
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
    asking(
        RESUMED,
        prompt="login consent",
        asked_at=NOW - timedelta(seconds=1),
        signed_in_at=NOW,
        consented_at=NOW,
    ),
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
    since = (
        request.resumed
        and session.auth_time > request.asked_at
        and session.auth_time == request.signed_in_at
    )
    if "login" in request.prompt:
        assert since
    if request.max_age is not None and not since:
        assert request.max_age > 0
        assert (NOW - session.auth_time).total_seconds() <= request.max_age
    if "select_account" in request.prompt:
        chosen = request.selected_at is not None and request.selected_at > request.asked_at
        assert since or (chosen and request.selected == session.user_id)
    if "consent" in request.prompt:
        assert consent is not None
        assert request.resumed
        assert consent.given_at > request.asked_at
        assert consent.given_at == request.consented_at
        assert NOW - consent.given_at <= FRESH_FOR


@given(REQUESTS, SESSIONS, CONSENTS, POLICIES)
def test_what_satisfied_a_request_satisfies_no_other(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
) -> None:
    """Neither the same one, nor one that was asked earlier."""
    answer = decide(request, session, consent, policy, NOW)
    if not isinstance(answer, Answer) or session is None:
        return
    if request.prompt & {"login", "consent", "select_account"} or request.max_age == 0:
        assert answer.uses is not None
    if answer.uses is None:
        return
    session = replace(session, decisions_used_until=answer.uses)
    again = decide(request, session, consent, policy, NOW)
    if request.prompt & {"login", "consent", "select_account"} or request.max_age == 0:
        expected = (Refuse,) if "none" in request.prompt else (SignIn, AskConsent)
        assert isinstance(again, expected)
    if request.max_age is not None:
        later = NOW + timedelta(seconds=request.max_age + 1)
        if timedelta(seconds=request.max_age) < later - session.auth_time <= FRESH_FOR:
            again = decide(request, session, consent, policy, later)
            assert isinstance(again, Refuse if "none" in request.prompt else SignIn)


@given(REQUESTS, SESSIONS, CONSENTS, POLICIES)
@example(asking(OLDER, prompt="login"), replace(SESSION, auth_time=NOW), CONSENT, OPEN)
@example(asking(OLDER, prompt="consent"), SESSION, replace(CONSENT, given_at=NOW), OPEN)
@example(asking(OLDER, prompt="select_account"), replace(SESSION, auth_time=NOW), CONSENT, OPEN)
def test_what_is_done_for_another_request_satisfies_none(
    request: AuthorizationRequest,
    session: Session | None,
    consent: Consent | None,
    policy: Policy,
) -> None:
    """No matter when it was sealed, and who opens it."""
    if session is None:
        return
    request = replace(request, signed_in_at=None, consented_at=None, selected_at=None)
    found = decide(request, session, consent, policy, NOW)
    if request.prompt & {"login", "consent", "select_account"} or request.max_age == 0:
        assert not isinstance(found, Answer)
    elif isinstance(found, Answer):
        assert found.uses is None


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
            request = replace(request, signed_in_at=now)
            consent = None
        elif isinstance(step, SecondFactor):
            assert session is not None
            session = replace(session, acr="2", has_factor=True)
        elif isinstance(step, AskConsent):
            # What was not on the page stays allowed or declined.
            before = consent or Consent(frozenset(), now)
            declined = before.declined - step.scopes
            consent = Consent(before.scope | step.scopes, now, declined)
            request = replace(request, consented_at=now)
        else:
            return
        now += timedelta(seconds=1)
    raise AssertionError(seen)
