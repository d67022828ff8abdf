"""Images: logos in PNG, JPEG, WebP and SVG.

The content decides the type, never a name. Nothing is decoded: of a raster image the signature and
the size are checked, because browsers need memory for each of its pixels.

Images are served byte for byte, as the type that was found. Browsers run and load nothing in an
`img`, and the answer has a content security policy for those who open the URL itself. So an SVG is
checked for what no policy stops: drawings that keep browsers busy for minutes.
"""

import binascii
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from struct import error as TooShort
from struct import unpack_from
from urllib.parse import unquote
from xml.parsers import expat

from sso.i18n.message import Message

SVG = "image/svg+xml"
_SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = frozenset(
    """
    circle clipPath defs desc ellipse g image line linearGradient mask metadata path polygon
    polyline radialGradient rect stop style svg switch symbol text textPath title tspan use
    """.split()  # noqa: SIM905 (a list would be one name a line)
)
# A browser can need minutes to draw a few of them.
_SLOW = re.compile("filter|marker|pattern|fe[A-Z].*")
# Namespaces of drawing programs, which browsers ignore.
_EDITORS = re.compile(
    r"http://(www\.inkscape\.org/|sodipodi\.sourceforge\.net/|ns\.adobe\.com/|purl\.org/dc/"
    r"|creativecommons\.org/ns#|www\.w3\.org/1999/02/22-rdf-syntax-ns#"
    r"|www\.bohemiancoding\.com/sketch/)"
)
_EMBEDDED = re.compile(r"data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/=\s]*")
_NOISE = re.compile(r"[\s\"']+")
# CSS that reaches out of the file. A backslash can spell any of it in other characters.
_REACHES_OUT = re.compile(r"\\|@import|url\((?!#)|image-set\(|image\(|src\(")
# CSS and presentation attributes that are slow to draw, or that hide the references between
# elements.
_SLOW_CSS = re.compile(r"filter|animation|@keyframes|stroke-dasharray(?!:none)|inherit|path\(")
_REFERENCE = re.compile(r"url\(#([^)]*)", re.IGNORECASE)
_COMMENT = re.compile(r"/\*.*?(\*/|\Z)", re.DOTALL)
_GRADIENTS = ("linearGradient", "radialGradient")
_MAX_DEPTH = 100
_MAX_EXPANDED = 1_000_000  # bytes
_ELEMENT = 50  # bytes that an element without attributes counts as
_LAYER = 5000  # bytes that an element with a mask or a blend mode counts as
_BLEND = "mix-blend-mode"
# Points of an outline may all cross each other: the square of their number, divided by this, counts
# as bytes. One outline has about 4,400 points then, which Chromium draws within a second.
_CROSSINGS = 20
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def check_svg(data: bytes) -> list[bytes]:
    """Check an SVG, and return its embedded images, which the caller has to check.

    Raises `ValueError`, which says how to fix the file.
    """
    if b"<svg" not in data and b":svg" not in data:
        raise ValueError(Message("it is neither PNG, JPEG, WebP nor SVG"))
    # The response declares UTF-8, and browsers follow it rather than the file.
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
        reason = expat.ErrorString(error.code)
        raise ValueError(
            Message(
                "it is not well-formed XML, in line %(line)d: %(reason)s",
                line=error.lineno,
                reason=reason,
            )
        ) from None
    checker.check_expanded()
    return checker.images


class _Element:
    """The cost of an element: its bytes, its children, and its references."""

    def __init__(self, name: str) -> None:
        self.name, self.size = name, _ELEMENT
        self.children: list[_Element] = []
        self.references: set[str] = set()


class _Checker:
    """The handlers of a parser; each raises `ValueError`."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.style = ""
        self.images: list[bytes] = []
        self._ids: dict[str, list[_Element]] = {}
        self._of_styles: set[str] = set()
        self._blends = False  # in the style sheet: any element may be meant
        self._count = 0
        self._path = [_Element("")]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        if not self.open and (space, local) != (_SVG, "svg"):
            raise ValueError(
                Message("it is not SVG: its first element has another name or namespace")
            )
        if space == _SVG and _SLOW.fullmatch(local):
            raise ValueError(
                Message(
                    "it has the element %(name)s, which can keep browsers busy for minutes; save "
                    "it as PNG or WebP",
                    name=repr(local[:40]),
                )
            )
        is_in_style = bool(self.open) and self.open[-1] == f"{_SVG} style"
        if is_in_style or (not _EDITORS.match(space) and (space != _SVG or local not in _ELEMENTS)):
            raise ValueError(
                Message(
                    "it has the element %(name)s, which no logo needs; save it as plain SVG",
                    name=repr(local[:40]),
                )
            )
        self.open.append(name)
        if len(self.open) > _MAX_DEPTH:
            raise ValueError(Message("its elements are nested too deeply; save it as plain SVG"))
        element = _Element(local)
        self._count += 1
        self._path[-1].children.append(element)
        self._path.append(element)
        if "id" in attributes:
            self._ids.setdefault(_id(attributes["id"]), []).append(element)
        for full, value in attributes.items():
            element.size += len(full) + len(value)
            self._attribute(local, full, value)

    def check_expanded(self) -> None:
        """Refuse a drawing that becomes too large when its references are drawn."""
        of_styles = [each for name in self._of_styles for each in self._ids.get(name, ())]
        if any(element.name not in _GRADIENTS for element in of_styles):
            raise ValueError(
                Message(
                    "its style sheet refers to something other than a gradient; save it with "
                    "presentation attributes"
                )
            )
        if self._blends:
            self._path[0].size += _LAYER * self._count
        costs: dict[_Element, int] = {}

        def cost(element: _Element, depth: int) -> int:
            """Count the bytes drawn for an element; a circular reference counts as too many."""
            if element not in costs:
                costs[element] = _MAX_EXPANDED + 1  # until it is counted: stops circular references
                if depth == 2 * _MAX_DEPTH:
                    return costs[element]
                drawn = [*element.children]
                for name in element.references:
                    drawn += self._ids.get(name, ())
                bytes_drawn = element.size + sum(cost(each, depth + 1) for each in drawn)
                costs[element] = min(bytes_drawn, _MAX_EXPANDED + 1)
            return costs[element]

        if cost(self._path[0], 0) > _MAX_EXPANDED:
            raise ValueError(Message("it takes browsers too long to draw; save it as PNG or WebP"))

    def _attribute(self, element: str, full: str, value: str) -> None:
        name = full.rpartition(" ")[2].lower()
        if name in ("href", "src", "base"):
            is_embedded = element == "image" and _EMBEDDED.fullmatch(value)
            if not (value.startswith("#") or is_embedded):
                raise ValueError(
                    Message(
                        "it refers to %(url)s, outside the file; embed it", url=repr(value[:60])
                    )
                )
            if is_embedded:
                self.images.append(_decoded(value))
            else:
                self._path[-1].references.add(_id(value[1:]))
        elif name == full.lower():  # no CSS stands in attributes of a namespace
            is_css = name in ("style", "filter", "mask", "clip-path", "stroke-dasharray")
            _check_css(f"{name}:{value}" if is_css else value, is_css=is_css)
            self._path[-1].references.update(_references(value))
            css = value.lower() if name == "style" else ""
            if name in ("mask", _BLEND) or "mask" in css or _BLEND in css:
                self._path[-1].size += _LAYER
            if name in ("d", "points"):
                points = len(_NUMBER.findall(value)) // 2
                self._path[-1].size += points**2 // _CROSSINGS

    def end(self, name: str) -> None:
        self.open.pop()
        self._path.pop()
        if name == f"{_SVG} style":
            _check_css(self.style, is_css=True)
            self._of_styles |= _references(self.style)
            self._blends |= _BLEND in self.style.lower()
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


def _id(text: str) -> str:
    """Normalize an identifier from CSS, a URL or an attribute."""
    return _NOISE.sub("", unquote(text))


def _references(css: str) -> set[str]:
    texts = (_NOISE.sub("", css), _NOISE.sub("", _COMMENT.sub("", css)))
    return {_id(match[1]) for text in texts for match in _REFERENCE.finditer(text)}


def _decoded(data_url: str) -> bytes:
    try:
        return b64decode(data_url.partition(",")[2])
    except binascii.Error:
        return b""


def _check_css(text: str, *, is_css: bool) -> None:
    plain = _NOISE.sub("", text.lower())
    if is_css and (_SLOW_CSS.search(plain) or _hides_reference(plain)):
        raise ValueError(
            Message(
                "its style has a filter, an animation, dashes or an inherited value, which can "
                "keep browsers busy; save it as PNG or WebP"
            )
        )
    if _REACHES_OUT.search(plain):
        raise ValueError(
            Message("its style refers to something outside the file; save it as plain SVG")
        )


def _hides_reference(css: str) -> bool:
    """Return whether a `style` attribute may set a custom property that refers to an element.

    Separators may be in a string or a comment. Style sheets refer to gradients only.
    """
    return css.startswith("style:") and "url(" in css.partition("--")[2].partition(":")[2]


MAX_SIDE = 4096  # pixels
MAX_PIXELS = 4_000_000  # a browser decodes them all, four bytes each
DAMAGED = Message("it is damaged or cut off; save it again")


@dataclass(frozen=True)
class Image:
    """A checked image."""

    media_type: str
    data: bytes

    @cached_property
    def digest(self) -> str:
        return sha256(self.data).hexdigest()

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{b64encode(self.data).decode()}"

    @property
    def has_dark_variant(self) -> bool:
        """Return whether it adapts itself to dark mode, as an SVG can."""
        return self.media_type == SVG and b"prefers-color-scheme" in self.data


NO_IMAGE = Image("", b"")


def read(path: Path, most: int) -> Image:
    """Read an image file of at most so many bytes. Raises `ValueError` with the remedy."""
    try:
        if not path.is_file():  # reading a pipe would block
            raise ValueError("there is no such file; check its path")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror}); check its mode") from None
    return parse(data, most)


def from_data_url(url: str, most: int) -> Image:
    """Read an image from its `Image.data_url`. Raises `ValueError` with the remedy."""
    try:
        data = b64decode(url.partition(";base64,")[2], validate=True)
    except binascii.Error:
        raise ValueError("its base64 is not valid") from None
    return parse(data, most)


def parse(data: bytes, most: int) -> Image:
    """Check the bytes of an image. Raises `ValueError` with the remedy."""
    if len(data) > most:
        raise ValueError(Message("it is larger than %(most)d kB; scale it down", most=most // 1024))
    if not data:
        raise ValueError("it is empty")
    if raster := _raster(data):
        return Image(raster[0], data)
    pixels = 0
    for embedded in check_svg(data):
        raster = _raster(embedded)
        if raster is None:
            raise ValueError(DAMAGED)
        pixels += raster[1]
    if pixels > MAX_PIXELS:
        raise ValueError(Message("it has %(size)s pixels; scale it down", size=pixels))
    return Image(SVG, data)


def _raster(data: bytes) -> tuple[str, int] | None:
    """Return the type of a raster image and its pixels, or `None`. Raises `ValueError`."""
    header = raster_header(data)
    if header is None:
        return None
    media_type, width, height = header
    check_size(width, height, MAX_SIDE, MAX_PIXELS)
    return media_type, width * height


def raster_header(data: bytes) -> tuple[str, int, int] | None:
    """Return the type, width and height of a PNG, JPEG or WebP; `None` if it is none of these.

    Nothing is decoded. Raises `ValueError` if the header is damaged.
    """
    for media_type, start, size_of in _RASTER:
        if start.match(data):
            try:
                width, height = size_of(data)
            except (TooShort, IndexError):
                raise ValueError(DAMAGED) from None
            return media_type, width, height
    return None


def check_size(width: int, height: int, max_side: int, max_pixels: int) -> None:
    """Raise `ValueError` if an image has no pixels, or too many."""
    if not (0 < width <= max_side and 0 < height <= max_side) or width * height > max_pixels:
        size = f"{width} × {height}"  # noqa: RUF001 (times)
        raise ValueError(Message("it has %(size)s pixels; scale it down", size=size))


def jpeg_scans(data: bytes) -> int:
    """Count the scans of a JPEG up to its end (ITU T.81 annex B); each is a pass over the image."""
    at, count = 2, 0
    while match := _MARKER.search(data, at):
        marker, at = data[match.end() - 1], match.end()
        if marker == 0xD9:
            break
        if marker == 0xDA:
            count += 1
        if marker != 0x01:
            at += int.from_bytes(data[at : at + 2], "big")
    return count


def _png_size(data: bytes) -> tuple[int, int]:
    """Read the first chunk (PNG §11.2.2)."""
    kind, width, height = unpack_from(">4sII", data, 12)
    if kind != b"IHDR":
        raise ValueError(DAMAGED)
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Read the frame header (ITU T.81 annex B), which precedes the first scan."""
    at = 2
    while True:
        start, marker = unpack_from("BB", data, at)
        if start != 0xFF or marker in (0xD9, 0xDA):
            raise ValueError(DAMAGED)
        at += 1 if marker == 0xFF else 2  # any number of FF may stand before a marker
        if marker in (0x01, 0xFF, *range(0xD0, 0xD8)):
            continue  # without a segment
        # Frame headers; C4, C8 and CC are tables of other kinds.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = unpack_from(">HH", data, at + 3)
            return width, height
        at += unpack_from(">H", data, at)[0]


def _webp_size(data: bytes) -> tuple[int, int]:
    """Read the first chunk (RFC 9649 §2.5 to §2.7)."""
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= 30:
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return width, height
    raise ValueError(DAMAGED)


# FF 00 is a byte of a scan, and FF D0 to FF D8 have no segment.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd8\xff]")
PNG, JPEG, WEBP = "image/png", "image/jpeg", "image/webp"
_RASTER = (
    (PNG, re.compile(rb"\x89PNG\r\n\x1a\n"), _png_size),
    (JPEG, re.compile(rb"\xff\xd8\xff"), _jpeg_size),
    (WEBP, re.compile(rb"RIFF.{4}WEBP", re.DOTALL), _webp_size),
)


MAX_LOGO = 256 * 1024


def checked_logo_file(text: str) -> str:
    read(Path(text), MAX_LOGO)
    return text
