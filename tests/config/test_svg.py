"""SVG that runs something, loads something or declares something is refused."""

import base64
from time import process_time

import pytest

from sso.config import images
from tests.support.logos import png

NS = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
HEAD = '<?xml version="1.0" encoding="{}"?>'
PNG_URL = "data:image/png;base64,iVBORw0KGgo="


def drawing(inner: str, attributes: str = "", head: str = "") -> bytes:
    return f"{head}<svg {NS} viewBox='0 0 1 1' {attributes}>{inner}</svg>".encode()


@pytest.mark.parametrize(
    "data",
    [
        drawing("<g id='a'><path d='M0 0h1'/></g><use xlink:href='#a'/><use href='#a'/>"),
        drawing("<style>.a { fill: url( '#b' ) } @media (prefers-color-scheme: dark) {}</style>"),
        drawing("<g style='stroke-dasharray:none;stroke-dashoffset:0'/>"),
        drawing("<rect fill='url(#g)' style='mask: url(\"#m\")'/><text>a &amp; b</text>"),
        drawing("<style>.a--b{fill:url(#g)}</style><linearGradient id='g'/>"),
        drawing(f"<image href='{PNG_URL}'/>"),
        drawing("", head=HEAD.format("UTF-8") + "<!-- Generator: a program -->\n"),
        drawing("", head='<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://x/svg11.dtd">'),
        drawing(
            "<i:namedview i:path='C:\\logo' /><metadata><r:RDF xmlns:r="
            "'http://www.w3.org/1999/02/22-rdf-syntax-ns#'/></metadata>",
            "xmlns:i='http://www.inkscape.org/namespaces/inkscape' i:version='1'",
        ),
        b"\xef\xbb\xbf" + drawing("<title>\xc3\xa9</title>"),
        b"<s:svg xmlns:s='http://www.w3.org/2000/svg'><s:path d='M0 0'/></s:svg>",
    ],
)
def test_drawings(data: bytes) -> None:
    images.check_svg(data)


def nested(kind: str, reference: str, levels: int, more: str = "") -> str:
    """Elements of a kind, each of which is drawn ten times in the next one."""
    inner = f"<{kind} id='a0'><rect width='9' height='9'/></{kind}>"
    for level in range(1, levels):
        parts = reference.format(level - 1) * 10
        inner += f"<{kind} id='a{level}' {more}>{parts}</{kind}>"
    return inner + reference.format(levels - 1)


USE, MASKED = "<use href='#a{}'/>", "<path d='M0 0h9' mask='url(#a{})'/>"
CLIPPED = "<path d='M0 0h9' style='clip-path : URL( \"#a{}\" )'/>"
MANY = "<path d='M0 0h9v9z'/>" * 1000
# A mask that is used again within another one, as drawing programs write them.
LAYERS = (
    "<defs><rect id='S1' width='9' height='9'/></defs><clipPath id='S2'><use xlink:href='#S1'/>"
    "</clipPath><linearGradient id='g'><stop/><stop/></linearGradient><linearGradient id='h' "
    "xlink:href='#g'/><mask id='m'><g clip-path='url(#S2)'><path d='M0 0h9'/></g></mask>"
)


@pytest.mark.parametrize(
    "inner",
    [
        LAYERS + "<g mask='url(#m)'><path fill='url(#h)' d='M0 0h9'/></g>" * 50,
        nested("g", USE, 4),
        nested("symbol", USE, 3),
        nested("mask", MASKED, 2),
        "<style>.a{fill:url(#g)} .b{stroke:url(#nothing)}</style><linearGradient id='g'/>",
        f"<g id='a'>{MANY}</g><use href='#a'/>",
    ],
)
def test_drawings_that_repeat_their_parts(inner: str) -> None:
    images.check_svg(drawing(inner))


@pytest.mark.parametrize(
    "inner",
    [
        nested("g", USE, 9),  # 1.1 kB, and a billion rectangles
        nested("g", USE.replace("href", "xlink:href"), 9),
        nested("symbol", USE, 9),
        nested("g", USE, 6),
        nested("mask", MASKED, 3),
        "<mask id='a'/>" + "<g mask='url(#a)'/>" * 250,
        "<mask id='a'/>" + "<g style='MASK:url(#a)'/>" * 250,
        nested("clipPath", CLIPPED, 7),
        nested("mask", MASKED.replace("url(#a{})", "url( &quot;#a{}&quot; /**/ )"), 7),
        nested("mask", MASKED.replace("url(#a{})", "url(#a{}"), 7),
        nested("g", USE.replace("#a", "#%61"), 9),
        nested("g", USE.replace("#a", "#a&#9;"), 9),
        nested("g", USE, 9).replace("a0", "a&quot;0").replace("a&quot;0'/>", "a%220'/>"),
        f"<g id='a'>{MANY}</g>" + "<use href='#a'/>" * 1000,
        f"<mask id='a'>{MANY}</mask>" + "<rect mask='url(#a)'/>" * 1000,
        "<g id='a'><use href='#a'/></g>",
        "<mask id='a'><rect mask='url(#b)'/></mask><mask id='b'><rect mask='url(#a)'/></mask>",
        "".join(f"<linearGradient id='a{n}' href='#a{n + 1}'/>" for n in range(1200)),
        f"<path d='M0 0{'h1v1' * 5000}' id='a'/>" + "<use href='#a'/>" * 500,
    ],
)  # fmt: skip
def test_small_files_that_are_large_drawings(inner: str) -> None:
    """A thousand bytes keep the browsers of all who see them busy for minutes."""
    data = drawing(inner)
    assert len(data) < 64 * 1024
    begun = process_time()
    with pytest.raises(ValueError, match="it takes browsers too long to draw"):
        images.check_svg(data)
    assert process_time() - begun < 1


def outline(points: int, shape: str = "<path d='M{0}z'/>") -> str:
    """Points on two sides in turn, so that every line crosses all others."""
    return shape.format(" ".join(f"{9 * (n % 2)} {n}" for n in range(points)))


BLENDED = "<rect width='9' height='9' style='mix-blend-mode:difference'/>"
SHEET = "<style>rect{mix-blend-mode:screen}</style>"
POLYGON = "<polygon points='{0}'/>"


@pytest.mark.parametrize(
    ("inner", "is_taken"),
    [
        (outline(4000), True),
        (outline(5000), False),
        (outline(4000, POLYGON), True),
        (outline(5000, POLYGON), False),
        (outline(400) * 20, True),
        (outline(3000) * 3, False),
        (f"<g id='a'>{outline(2000)}</g>" + "<use href='#a'/>" * 3, True),
        (f"<g id='a'>{outline(2000)}</g>" + "<use href='#a'/>" * 10, False),
        (BLENDED * 150, True),
        (BLENDED * 250, False),
        (SHEET + "<rect width='9' height='9'/>" * 150, True),
        (SHEET + "<rect width='9' height='9'/>" * 250, False),
    ],
)
def test_outlines_that_cross_themselves_and_layers(inner: str, is_taken: bool) -> None:
    data = drawing(inner)
    assert len(data) < 64 * 1024
    if is_taken:
        images.check_svg(data)
    else:
        with pytest.raises(ValueError, match="it takes browsers too long to draw"):
            images.check_svg(data)


def test_an_outline_in_a_style_is_refused() -> None:
    """It is not counted there."""
    for css in ('d:path("M0 0h9")', "D : PATH('M0 0h9')", "clip-path:path('M0 0h9')"):
        for inner in (f"<path style='{css.replace(chr(39), chr(34))}'/>".replace('"', "&quot;"),
                      f"<style>a{{{css}}}</style>"):  # fmt: skip
            with pytest.raises(ValueError, match="keep browsers busy"):
                images.check_svg(drawing(inner))


@pytest.mark.parametrize("size", [(16_000, 16_000), (2000, 2000), (4097, 1)])
def test_images_within_are_as_small_as_others(size: tuple[int, int]) -> None:
    image = base64.b64encode(png(*size, rows=1)).decode()
    twice = drawing(f"<image href='data:image/png;base64,{image}'/>" * 2)
    with pytest.raises(ValueError, match="pixels; scale it down"):
        images.parse(twice, 64 * 1024)


def test_an_image_within() -> None:
    for image, is_whole in ((png(), True), (png()[:20], False), (b"", False), (b"<svg>", False)):
        data = drawing(f"<image href='data:image/png;base64,{base64.b64encode(image).decode()}'/>")
        if is_whole:
            assert images.parse(data, 64 * 1024).data == data
        else:
            with pytest.raises(ValueError, match="it is damaged"):
                images.parse(data, 64 * 1024)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (drawing("<script>alert(1)</script>"), "'script'"),
        (drawing("<s:script xmlns:s='http://www.w3.org/2000/svg'/>"), "'script'"),
        (drawing("<SCRIPT/>"), "'SCRIPT'"),
        (drawing("<script xmlns='http://www.w3.org/1999/xhtml'/>"), "'script'"),
        (drawing("<foreignObject><p/></foreignObject>"), "'foreignObject'"),
        (drawing("<iframe xmlns='http://www.w3.org/1999/xhtml'/>"), "'iframe'"),
        (drawing("<a href='javascript:alert(1)'/>"), "'a'"),
        (drawing("<set attributeName='href' to='javascript:alert(1)'/>"), "'set'"),
        (drawing("<animate attributeName='x'/>"), "'animate'"),
        (drawing("<metadata><script/></metadata>"), "'script'"),
        (drawing("<use href='https://evil.example/x.svg#a'/>"), "outside the file"),
        (drawing("<use xlink:href='//evil.example/#a'/>"), "outside the file"),
        (drawing("<image href='https://evil.example/x.png'/>"), "outside the file"),
        (drawing("<image href='data:image/svg+xml;base64,AAAA'/>"), "outside the file"),
        (drawing("<use href='data:image/png;base64,AAAA'/>"), "outside the file"),
        (drawing("<g xml:base='https://evil.example/'/>"), "outside the file"),
        (drawing("<filter id='f'><feGaussianBlur stdDeviation='2'/></filter>"), "'filter'"),
        (drawing("<feTurbulence/>"), "'feTurbulence'"),
        (drawing("<pattern/>"), "'pattern'"),
        (drawing("<marker/>"), "'marker'"),
        (drawing("<g filter='blur(9px)'/>"), "a filter"),
        (drawing("<g style='-webkit-filter:blur(9px)'/>"), "a filter"),
        (drawing("<path stroke-dasharray='.01' d='M0 0h1e6'/>"), "dashes"),
        (drawing("<style>path{stroke-dasharray : .01}</style>"), "dashes"),
        (drawing("<style>g{ FILTER : blur(9px) }</style>"), "a filter"),
        (drawing("<style>@keyframes a{to{x:9}} g{animation:a 1s infinite}</style>"), "animation"),
        (drawing("<mask id='a' mask='inherit'/>"), "inherited value"),
        (drawing("<g style='all:inherit'/>"), "inherited value"),
        (drawing("<path style='stroke-dasharray/**/:.01' d='M0 0h1e6'/>"), "dashes"),
        (drawing("<g style='--m:/*;*/url(#m)'/>"), "inherited value"),
        (drawing("<g style='--n:;--m:var(--n,\";\")url(#m)'/>"), "inherited value"),
        (drawing("<style>@im<style/>port '//evil.example/x.css';</style>"), "'style'"),
        (drawing("<style>g{fil<style/>ter:blur(9px)}</style>"), "'style'"),
        (drawing("<style>g{fil<title/>ter:blur(9px)}</style>"), "'title'"),
        (drawing("<g style='--m: url(#m)'><path style='mask:var(--m)'/></g>"), "inherited value"),
        (drawing("<style>g{mask:url(#m)}</style><mask id='m'/>"), "other than a gradient"),
        (drawing("<style>g{mask:url(#m /**/)}</style><mask id='m'/>"), "other than a gradient"),
        (drawing("<rect fill='url(https://evil.example/#a)'/>"), "its style"),
        (drawing("<rect fill=' URL ( \"//evil.example\" )'/>"), "its style"),
        (drawing("<rect style='fill:u\\72l(//evil.example)'/>"), "its style"),
        (drawing("<style>@import '//evil.example/x.css';</style>"), "its style"),
        (drawing("<style>@im<!-- -->port '//evil.example/x.css';</style>"), "its style"),
        (drawing("<style><![CDATA[a{b:url(//evil.example)}]]></style>"), "its style"),
        (drawing("<style>a{b:image-set('//evil.example' 1x)}</style>"), "its style"),
        (drawing("<style>@font-face{src:url(data:font/woff2,)}</style>"), "its style"),
        (drawing("&a;", head='<!DOCTYPE svg [<!ENTITY a "b">]>'), "entities"),
        (drawing("", head='<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]>'), "entities"),
        (drawing("", head='<!DOCTYPE svg [<!ATTLIST svg onload CDATA "x">]>'), "entities"),
        (drawing("&nbsp;"), "well-formed"),
        (drawing("", head="<?xml-stylesheet href='//evil.example/x.css'?>"), "xml-stylesheet"),
        (drawing("", head=HEAD.format("UTF-16")), "UTF-8"),
        (drawing("", head=HEAD.format("UTF-7")), "UTF-8"),
        (drawing("").decode().encode("utf-16"), "neither"),
        (drawing("").replace(b"0 0", b"\xff"), "well-formed"),
        (b"<html><svg></svg></html>", "not SVG"),
        (b"<svg></svg>", "not SVG"),
        (drawing("") + b"<script/>", "well-formed"),
        (drawing("<g>"), "well-formed"),
        (drawing("<g>" * 100 + "</g>" * 100), "nested too deeply"),
        (drawing("<g>" * 9000), "nested too deeply"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="it") as caught:
        images.check_svg(data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("css", ["-" * 20_000 + ":" * 20_000, "--" + ":" * 50_000, "/*" * 25_000])
def test_no_style_takes_long(css: str) -> None:
    begun = process_time()
    images.check_svg(drawing(f"<g style='{css}'/><style>{css}</style>"))
    assert process_time() - begun < 1
