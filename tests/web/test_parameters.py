"""The strict reader of parameters: its bounds, and what it lets through."""

from urllib.parse import parse_qsl

import pytest
from flask import Flask, request
from hypothesis import example, given
from hypothesis import strategies as st

from sso.process import concurrency
from sso.web import parameters
from sso.web.parameters import FORM, MAX_FIELDS, MAX_LENGTH, ParameterFault
from tests.support.actors import BASE


def pairs(text: str) -> parameters.Pairs:
    return parameters.read_pairs(text.encode("utf-8", "surrogateescape"))


@given(
    st.text("ab=&;%+2Ff0 \0é\udcff", max_size=40).filter(lambda text: text.count("&") < MAX_FIELDS)
)
@example("%")
@example("a=%zz&%3D=%26&&=&a+b=c%2Bd")
@example("é=%C3%A9&%ff=%c3")
def test_it_reads_what_the_standard_library_reads(text: str) -> None:
    assert pairs(text) == parse_qsl(text, keep_blank_values=True, errors="surrogateescape")


@pytest.mark.parametrize(("count", "good"), [(MAX_FIELDS, True), (MAX_FIELDS + 1, False)])
def test_how_many(count: int, good: bool) -> None:
    text = "&".join(f"a{number}=x" for number in range(count))
    if good:
        assert len(pairs(text)) == count
    else:
        with pytest.raises(ParameterFault):
            pairs(text)


def test_the_bound_is_small() -> None:
    assert (MAX_FIELDS, MAX_LENGTH) == (100, 4096)


@pytest.mark.parametrize("text", ["a=1&a=2", "a=1&a=1", "a=&a=1", "a=1&a=", "a=&a=", "a&a=1"])
def test_repeated(text: str) -> None:
    """Also when one of them is empty: two readers may differ about which counts."""
    with pytest.raises(ParameterFault) as caught:
        parameters.single(pairs(text), ("a",))
    assert caught.value.name == "a"
    parameters.single(pairs(text), ("b",))  # what nobody listed may be repeated


def test_the_first_of_what_may_be_repeated_counts() -> None:
    assert parameters.single(pairs("x=1&x=2&y=&z"), ("a",)) == {"x": "1"}


@pytest.mark.parametrize("length", [MAX_LENGTH, MAX_LENGTH + 1])
def test_how_long(length: int) -> None:
    fault = parameters.fault_of("a", "x" * length)
    assert (fault is not None) is (length > MAX_LENGTH)


UNCLEAN = ("\0", "\x01", "\t", "\n", "\r", "\x1f", "\x7f", "\ud800", "\udcff", "\udfff")
CLEAN = (" ", "!", "~", "\x80", "é", "漢", "\ud7ff", "\ue000", "\U0001f600")


@pytest.mark.parametrize("character", [*UNCLEAN, *CLEAN])
@pytest.mark.parametrize("text", ["{}", "a{}", "{}a", "a{}a"])
def test_clean_text(character: str, text: str) -> None:
    fault = parameters.fault_of("a", text.format(character))
    assert (fault is not None) is (character in UNCLEAN)
    values = {"a": text.format(character), "b": "x"}
    parameters.check_clean(values, ("b", "c"))
    if fault:
        with pytest.raises(ParameterFault):
            parameters.check_clean(values, ("b", "a"))


def test_a_fault_does_not_repeat_what_was_sent() -> None:
    for value in ("x" * 5000, "secret\0"):
        assert "secret" not in str(parameters.fault_of("a", value))
        assert "xxx" not in str(parameters.fault_of("a", value))


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("application/x-www-form-urlencoded", True),
        ("application/x-www-form-urlencoded; charset=utf-8", True),
        ("application/json", False),
        ("multipart/form-data; boundary=x", False),
        ("text/plain", False),
        ("", False),
    ],
)
def test_kinds_of_bodies(app: Flask, kind: str, good: bool) -> None:
    with app.test_request_context(method="POST", data=b"a=1", content_type=kind):
        if good:
            assert parameters.form_pairs(request) == [("a", "1")]
        else:
            with pytest.raises(ParameterFault):
                parameters.form_pairs(request)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=%26%3D%2B", "&=+"),
        ("a=b+c", "b c"),
        ("a=b=c", "b=c"),
        ("a=%FF", "\udcff"),
        ("a=%C3%A9", "é"),
        ("a=;b", ";b"),
    ],
)
def test_decoding(text: str, wanted: str) -> None:
    assert parameters.single(pairs(text), ("a",)) == {"a": wanted}


TOKEN = f"{BASE}/oauth2/token"
CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


@pytest.mark.parametrize("kind", [FORM, f"{FORM}; charset=utf-8", FORM.upper(), f" {FORM} "])
@pytest.mark.parametrize("more", [{}, CHUNKED])
def test_a_body_is_read_however_it_comes(app: Flask, kind: str, more: dict[str, object]) -> None:
    answer = app.test_client().post(
        TOKEN, data=b"grant_type=nothing", content_type=kind, environ_overrides=more
    )
    assert answer.get_json()["error"] == "unsupported_grant_type"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/json", f"{FORM}x", f"x,{FORM}"])
def test_no_other_kind_of_body_is_read(app: Flask, kind: str) -> None:
    answer = app.test_client().post(TOKEN, data=b"grant_type=nothing", content_type=kind)
    assert answer.get_json()["error"] == "invalid_request"


@pytest.mark.parametrize("more", [{}, CHUNKED])
@pytest.mark.parametrize(("beyond", "status"), [(0, 400), (1, 413)])
def test_a_body_of_just_the_bound(
    app: Flask, beyond: int, status: int, more: dict[str, object]
) -> None:
    body = b"grant_type=nothing&a=".ljust(concurrency.MAX_BODY + beyond, b"x")
    answer = app.test_client().post(TOKEN, data=body, content_type=FORM, environ_overrides=more)
    assert answer.status_code == status


def test_a_body_that_broke_off_is_not_read(app: Flask) -> None:
    answer = app.test_client().post(
        TOKEN,
        data=b"grant_type=nothing",
        content_type=FORM,
        environ_overrides={"CONTENT_LENGTH": "19"},  # one byte more than there is
    )
    assert answer.status_code == 400
    assert "unsupported" not in answer.text


@pytest.mark.parametrize(("count", "status"), [(0, 400), (1, 413)])
def test_a_body_with_too_many_parts_is_not_read(app: Flask, count: int, status: int) -> None:
    body = b"&" * (concurrency.MAX_FIELDS + count)
    assert app.test_client().post(TOKEN, data=body, content_type=FORM).status_code == status
