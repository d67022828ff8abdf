"""SVG that runs something, loads something or declares something is refused."""

import pytest

from sso.config import svg

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
        drawing("<rect fill='url(#g)' style='mask: url(\"#m\")'/><text>a &amp; b</text>"),
        drawing(f"<image href='{PNG_URL}'/>"),
        drawing("<filter id='f'><feGaussianBlur stdDeviation='2'/></filter>"),
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
    svg.check(data)


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
        (drawing("", "onload='alert(1)'"), "'onload'"),
        (drawing("<rect OnClick='alert(1)'/>"), "'onclick'"),
        (drawing("<use href='https://evil.example/x.svg#a'/>"), "outside the file"),
        (drawing("<use xlink:href='//evil.example/#a'/>"), "outside the file"),
        (drawing("<image href='https://evil.example/x.png'/>"), "outside the file"),
        (drawing("<image href='data:image/svg+xml;base64,AAAA'/>"), "outside the file"),
        (drawing("<use href='data:image/png;base64,AAAA'/>"), "outside the file"),
        (drawing("<g xml:base='https://evil.example/'/>"), "outside the file"),
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
        svg.check(data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
