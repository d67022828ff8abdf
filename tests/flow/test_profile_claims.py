"""Each surface has exactly the claims that the table gives it."""

from sso.flow.profile_claims import CLAIMS, TEXT_CLAIMS, Format, of_scope, title_of
from sso.flow.scopes import SCOPES
from sso.scim import resources
from sso.services import checks

VALUES = {
    Format.TEXT: "a text",
    Format.WEB_URL: "https://dana.example/",
    Format.BIRTHDATE: "1990-01-31",
    Format.TIME_ZONE: "Europe/Berlin",
    Format.LANGUAGE: "de",
    Format.ADDRESS: {"locality": "Delft"},
    Format.SWITCH: False,
}


def test_scopes_have_all_claims() -> None:
    own = {"name", "updated_at"}
    for scope in ("profile", "address", "phone"):
        assert set(SCOPES[scope].claims) - own == set(of_scope(scope))
    assert {claim.scope for claim in CLAIMS.values()} == {"profile", "address", "phone"}


def test_the_checks_accept_each_claim_in_its_format_only() -> None:
    for name, claim in CLAIMS.items():
        for kind, value in VALUES.items():
            errors = checks.claim_errors({name: value})
            if kind is claim.format:
                assert not errors
            elif Format.TEXT is not claim.format or not isinstance(value, str):
                assert errors, (name, value)
    assert checks.claim_errors({"nick_name": "Dana"})


def test_texts_are_all_but_the_address_and_the_switch() -> None:
    assert set(CLAIMS) - set(TEXT_CLAIMS) == {"address", "phone_number_verified"}


def test_each_attribute_of_scim_exists() -> None:
    schema = resources.UserResource
    for claim in CLAIMS.values():
        attribute = claim.scim.partition(".")[0]
        assert not attribute or attribute in {
            field.serialization_alias for field in schema.model_fields.values()
        }


def test_an_unknown_claim_is_its_own_title() -> None:
    assert title_of("given_name") == "Given name"
    assert title_of("shoe_size") == "shoe_size"
