"""The accent color: readable in light and dark mode (WCAG 2.2, 1.4.3: a contrast of 4.5 to 1).

No color is readable on both light and dark pages. In the mode where the accent is not readable, it
is mixed with black or white, as little as possible.
"""

import re
from dataclasses import dataclass

from sso.i18n.message import Message

AA = 4.5
BLACK, WHITE = "#000000", "#ffffff"


@dataclass(frozen=True)
class Mode:
    """The colors of `static/sso.css` that meet the accent; `toward` makes it easier to read."""

    name: str
    card: str
    ground: str
    on_accent: str
    toward: str
    tinted: float

    def tint(self, accent: str) -> str:
        return mix(self.card, accent, self.tinted)

    def contrast(self, accent: str) -> float:
        """Return the lowest contrast of the accent with its backgrounds and with the text on it."""
        colors = (self.card, self.ground, self.tint(accent), self.on_accent)
        return min(contrast(accent, color) for color in colors)

    def variant(self, accent: str) -> tuple[int, str]:
        """Return the number of steps to the nearest readable color, and that color."""
        mixtures = ((step, mix(accent, self.toward, step / 100)) for step in range(101))
        return next((step, color) for step, color in mixtures if self.contrast(color) >= AA)


LIGHT = Mode("light", "#ffffff", "#f3f5f9", WHITE, toward=BLACK, tinted=0.08)
DARK = Mode("dark", "#181e2a", "#0f131b", "#0d1530", toward=WHITE, tinted=0.14)


def accent(text: str) -> str:
    """Check an accent color. Raises `ValueError` with the remedy."""
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        raise ValueError(Message("give it as # and six hexadecimal digits, such as #2f5bea"))
    variants = {mode: mode.variant(text.lower()) for mode in (LIGHT, DARK)}
    if all(steps for steps, _ in variants.values()):
        raise ValueError(
            Message(
                "its contrast is %(light)s:1 in light mode and %(dark)s:1 in dark mode; text needs "
                "%(least)s:1 in one of them; give %(darker)s or %(lighter)s",
                light=f"{LIGHT.contrast(text):.2f}",
                dark=f"{DARK.contrast(text):.2f}",
                least=AA,
                darker=variants[LIGHT][1],
                lighter=variants[DARK][1],
            )
        )
    return text.lower()


def light_variant(accent: str) -> str:
    """Return the accent as it is readable in light mode."""
    return LIGHT.variant(accent)[1]


def stylesheet(accent: str) -> str:
    """Return the rules that replace the accent of `static/sso.css`."""
    light, dark = _rule(LIGHT, accent), _rule(DARK, accent)
    return f"\n{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def _rule(mode: Mode, accent: str) -> str:
    _, color = mode.variant(accent)
    strong, tint = mix(color, mode.toward, 0.2), mode.tint(color)
    return f":root {{ --accent: {color}; --accent-strong: {strong}; --tint: {tint}; }}"


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colors (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def mix(first: str, second: str, share: float) -> str:
    """Mix a color with a share of another one."""
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(color: str) -> list[int]:
    return list(bytes.fromhex(color[1:]))


def _luminance(color: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
