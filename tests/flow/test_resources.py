"""Which API a token is for: the bounds, and what is left of a grant."""

from datetime import UTC, datetime, timedelta

import pytest

from sso.flow import resources
from sso.flow.refusals import Cause
from sso.flow.resources import Api, InvalidTarget
from sso.i18n.message import code_of

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ISSUER, DOCS, MAPS = "https://id.example", "https://docs.example", "https://maps.example"


def api(identifier: str, created_at: datetime = NOW) -> Api:
    nobody, scopes = frozenset[str](), {"read": "Read"}
    return Api(identifier, "Name", scopes, {}, nobody, False, (), "list", None, created_at)


APIS = {identifier: api(identifier) for identifier in (DOCS, MAPS)}
AT_BOTH = f"openid {DOCS}#read {MAPS}#"


@pytest.mark.parametrize(("count", "is_taken"), [(9, True), (10, True), (11, False)])
def test_how_many_a_request_names(count: int, is_taken: bool) -> None:
    apis = {f"{DOCS}/{n}": api(f"{DOCS}/{n}") for n in range(count)}
    if is_taken:
        assert resources.requested(" ".join(apis), None, apis, ISSUER) == tuple(apis)
        return
    with pytest.raises(InvalidTarget) as refusal:
        resources.requested(" ".join(apis), None, apis, ISSUER)
    assert code_of(refusal.value.description) == Cause.TOO_MANY_RESOURCES


def test_an_api_exists_from_its_registration_on() -> None:
    second = timedelta(seconds=1)
    for moment, names in ((NOW - second, []), (NOW, [DOCS]), (NOW + second, [DOCS])):
        assert list(resources.existing_at(moment, {DOCS: api(DOCS)})) == names


@pytest.mark.parametrize(
    ("resource", "granted", "allowed", "expected"),
    [
        (None, AT_BOTH, AT_BOTH, DOCS),
        (MAPS, AT_BOTH, AT_BOTH, MAPS),
        (ISSUER, AT_BOTH, AT_BOTH, None),
        (f"{ISSUER}/", AT_BOTH, "openid", None),
        (None, "openid", "openid", None),
        (MAPS, AT_BOTH, f"{MAPS}#", MAPS),
        # The first API was withdrawn: no other one takes its place.
        (None, AT_BOTH, f"openid {MAPS}#", Cause.RESOURCE_WITHDRAWN),
        (MAPS, AT_BOTH, f"openid {DOCS}#read", Cause.RESOURCE_WITHDRAWN),
        # Nothing of this server was approved.
        (ISSUER, f"{DOCS}#read", f"{DOCS}#read", Cause.RESOURCE_NOT_APPROVED),
        (MAPS, f"{DOCS}#read", f"{DOCS}#read", Cause.RESOURCE_NOT_APPROVED),
        ("https://other.example", AT_BOTH, AT_BOTH, Cause.UNKNOWN_RESOURCE),
    ],
)
def test_the_audience(
    resource: str | None, granted: str, allowed: str, expected: str | Cause | None
) -> None:
    if not isinstance(expected, Cause):
        assert resources.audience(resource, granted, allowed, APIS, ISSUER) == expected
        return
    with pytest.raises(InvalidTarget) as refusal:
        resources.audience(resource, granted, allowed, APIS, ISSUER)
    assert code_of(refusal.value.description) == expected
