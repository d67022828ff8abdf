"""SVG for logos: drawings, and nothing that runs or loads anything. What is not known is refused.

The file is served as it is, byte for byte. Browsers run nothing in an `img`, and its answer has a
policy for those who open it by itself; this is the third fence.
"""

import re
from xml.parsers import expat

from sso.i18n.message import Message

MEDIA_TYPE = "image/svg+xml"
_SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = frozenset(
    """
    circle clipPath defs desc ellipse filter g image line linearGradient marker mask metadata path
    pattern polygon polyline radialGradient rect stop style svg switch symbol text textPath title
    tspan use
    feBlend feColorMatrix feComponentTransfer feComposite feConvolveMatrix feDiffuseLighting
    feDisplacementMap feDistantLight feDropShadow feFlood feFuncA feFuncB feFuncG feFuncR
    feGaussianBlur feMerge feMergeNode feMorphology feOffset fePointLight feSpecularLighting
    feSpotLight feTile feTurbulence
    """.split()  # noqa: SIM905 (a list would be one name a line)
)
# What drawing programs leave for themselves; browsers pass it over.
_EDITORS = re.compile(
    r"http://(www\.inkscape\.org/|sodipodi\.sourceforge\.net/|ns\.adobe\.com/|purl\.org/dc/"
    r"|creativecommons\.org/ns#|www\.w3\.org/1999/02/22-rdf-syntax-ns#"
    r"|www\.bohemiancoding\.com/sketch/)"
)
_EMBEDDED = re.compile(r"data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/=\s]*")
_NOISE = re.compile(r"[\s\"']+")
# CSS that reaches out of the file. A backslash can spell any of it in other characters.
_REACHES_OUT = re.compile(
    r"\\|@import|url\((?!#)|image-set\(|image\(|src\(|expression\(|-moz-binding"
)
_MAX_DEPTH = 100


def check(data: bytes) -> None:
    """Raises `ValueError` with the remedy."""
    if b"<svg" not in data and b":svg" not in data:
        raise ValueError(Message("it is neither PNG, JPEG, WebP nor SVG"))
    # As browsers read it: the answer says UTF-8, whatever the file says.
    parser = expat.ParserCreate("utf-8", " ")
    checker = _Checker()
    parser.buffer_text = True
    parser.StartElementHandler = checker.start
    parser.EndElementHandler = checker.end
    parser.CharacterDataHandler = checker.text
    parser.StartDoctypeDeclHandler = checker.doctype
    parser.ProcessingInstructionHandler = checker.instruction
    parser.XmlDeclHandler = checker.declaration
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        words = expat.ErrorString(error.code)
        raise ValueError(
            Message(
                "it is not well-formed XML, in line %(line)d: %(reason)s",
                line=error.lineno,
                reason=words,
            )
        ) from None


class _Checker:
    """The handlers of a parser; each raises `ValueError`."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.style = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        if not self.open and (space, local) != (_SVG, "svg"):
            raise ValueError(
                Message("it is not SVG: its first element has another name or namespace")
            )
        if not _EDITORS.match(space) and (space != _SVG or local not in _ELEMENTS):
            raise ValueError(
                Message(
                    "it has the element %(name)s, which no logo needs; save it as plain SVG",
                    name=repr(local[:40]),
                )
            )
        self.open.append(name)
        if len(self.open) > _MAX_DEPTH:
            raise ValueError(Message("its elements are nested too deeply; save it as plain SVG"))
        for full, value in attributes.items():
            self._attribute(local, full, value)

    def _attribute(self, element: str, full: str, value: str) -> None:
        name = full.rpartition(" ")[2].lower()
        if name.startswith("on"):
            raise ValueError(
                Message(
                    "it has the attribute %(name)s, which runs a script; remove it",
                    name=repr(name[:40]),
                )
            )
        if name in ("href", "src", "base"):
            is_embedded = element == "image" and _EMBEDDED.fullmatch(value)
            if not (value.startswith("#") or is_embedded):
                raise ValueError(
                    Message(
                        "it refers to %(url)s, outside the file; embed it", url=repr(value[:60])
                    )
                )
        elif name == full.lower():  # no CSS stands in attributes of a namespace
            _check_css(value)

    def end(self, name: str) -> None:
        self.open.pop()
        if name == f"{_SVG} style":
            _check_css(self.style)
            self.style = ""

    def text(self, data: str) -> None:
        if self.open[-1] == f"{_SVG} style":
            self.style += data

    def doctype(
        self, _name: str, _system: str | None, _public: str | None, has_subset: bool
    ) -> None:
        if has_subset:
            raise ValueError(Message("it declares entities of its own; save it as plain SVG"))

    def instruction(self, target: str, _data: str) -> None:
        raise ValueError(
            Message(
                "it has the instruction %(name)s; save it as plain SVG",
                name=f"<?{target[:40]} …?>",
            )
        )

    def declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding and encoding.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise ValueError(Message("it is not in UTF-8; save it in UTF-8"))


def _check_css(text: str) -> None:
    if _REACHES_OUT.search(_NOISE.sub("", text.lower())):
        raise ValueError(
            Message("its style refers to something outside the file; save it as plain SVG")
        )
