"""The accent color is readable everywhere, or it is refused."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.config import colors
from sso.config.colors import AA, DARK, LIGHT, Mode
from sso.jobs import mail

CSS = (Path(colors.__file__).parents[1] / "static" / "sso.css").read_text()
every_color = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")


def variables(css: str) -> tuple[dict[str, str], dict[str, str]]:
    """The custom properties in light and in dark mode."""
    found = re.findall(r"^\s*:root \{(.*?)\}", css, re.DOTALL | re.MULTILINE)
    found += re.findall(r"dark\) \{ :root \{(.*?)\}", css)
    light, dark = ({k: long(v) for k, v in re.findall(r"--([\w-]+): (#\w+);", one)}
                   for one in found)  # fmt: skip
    return light, {**light, **dark}


def long(color: str) -> str:
    return color if len(color) == 7 else "#" + "".join(char * 2 for char in color[1:])


def check(mode: Mode, found: dict[str, str]) -> None:
    grounds = ("card", "ground", "tint", "on-accent")
    contrasts = {name: colors.contrast(found["accent"], found[name]) for name in grounds}
    assert min(contrasts.values()) >= AA, contrasts
    assert colors.contrast(found["accent-strong"], found["on-accent"]) >= AA
    assert colors.contrast(found["ink"], found["tint"]) >= AA


def test_the_colors_are_those_of_the_pages() -> None:
    for mode, found in zip((LIGHT, DARK), variables(CSS), strict=True):
        assert found["card"] == mode.card
        assert found["ground"] == mode.ground
        assert found["on-accent"] == mode.on_accent
        check(mode, found)
    assert variables(CSS)[0]["accent"] == mail._BLUE


def test_the_contrast_is_that_of_wcag() -> None:
    assert colors.contrast("#000000", "#ffffff") == 21
    assert colors.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert colors.contrast("#ff0000", "#ffffff") == pytest.approx(4.0, abs=0.01)


@pytest.mark.slow
@given(every_color)
def test_what_is_taken_is_readable_in_both_modes(accent: str) -> None:
    try:
        assert colors.accent(accent.upper()) == accent
    except ValueError as error:
        darker, lighter = re.findall(r"#[0-9a-f]{6}", str(error))
        assert colors.accent(darker)
        assert colors.accent(lighter)
        return
    ours = variables(CSS)
    for mode, before, found in zip((LIGHT, DARK), ours, variables(colors.stylesheet(accent)),
                                   strict=True):  # fmt: skip
        check(mode, {**before, **found})
    assert accent in colors.stylesheet(accent)  # as it is in one of them
    assert colors.contrast(colors.light_variant(accent), "#ffffff") >= AA


@pytest.mark.parametrize("text", ["red", "#fff", "#12345678", "#123456789", "2f5bea", "#2f5bex",
                                  "#2f5bea;", "#2f5bea\n", "#\uff12f5bea"])  # fmt: skip
def test_what_is_no_color(text: str) -> None:
    with pytest.raises(ValueError, match="six hexadecimal digits"):
        colors.accent(text)


def test_a_color_that_is_readable_in_neither_mode() -> None:
    with pytest.raises(ValueError, match="contrast") as caught:
        colors.accent("#808080")
    assert str(caught.value) == (
        "its contrast is 3.62:1 in light mode and 3.55:1 in dark mode; text needs 4.5:1 in "
        "one of them; give #6f6f6f or #969696"
    )
