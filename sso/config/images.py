"""Logos: PNG, JPEG, WebP and SVG. Content decides the type, never a name, and nothing is decoded.

A file has to be whole and end where its image ends: what follows it might be read as another type.
"""

import binascii
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from struct import error as TooShort
from struct import unpack_from

from sso.config import svg
from sso.i18n.message import Message

MAX_SIDE = 4096  # pixels
MAX_PIXELS = 4_000_000  # a browser decodes them all, four bytes each
_DAMAGED = Message("it is damaged or cut off; save it again")
_TRAILING = Message("it goes on after the end of the image; save it again")


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
        """Whether it looks different in dark mode by itself, as an SVG can."""
        return self.media_type == svg.MEDIA_TYPE and b"prefers-color-scheme" in self.data


NO_IMAGE = Image("", b"")


def read(path: Path, most: int) -> Image:
    """An image file of at most so many bytes. Raises `ValueError` with the remedy."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ValueError("there is no such file; check its path")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror}); check its mode") from None
    return parse(data, most)


def from_data_url(url: str, most: int) -> Image:
    """What `Image.data_url` holds. Raises `ValueError` with the remedy."""
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
    for embedded in svg.check(data):
        raster = _raster(embedded)
        if raster is None:
            raise ValueError(_DAMAGED)
        pixels += raster[1]
    if pixels > MAX_PIXELS:
        raise ValueError(Message("it has %(size)s pixels; scale it down", size=pixels))
    return Image(svg.MEDIA_TYPE, data)


def _raster(data: bytes) -> tuple[str, int] | None:
    """Return the type of a raster image and its pixels, or `None`. Raises `ValueError`."""
    for media_type, start, size_of in _RASTER:
        if start.match(data):
            try:
                width, height = size_of(data)
            except (TooShort, IndexError):
                raise ValueError(_DAMAGED) from None
            _check_size(width, height)
            return media_type, width * height
    return None


def _check_size(width: int, height: int) -> None:
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE) or width * height > MAX_PIXELS:
        size = f"{width} × {height}"  # noqa: RUF001 (times)
        raise ValueError(Message("it has %(size)s pixels; scale it down", size=size))


def _png_size(data: bytes) -> tuple[int, int]:
    """PNG §5: chunks, each with its length, type and CRC."""
    kinds: list[bytes] = []
    end = 8
    while kinds[-1:] != [b"IEND"]:
        length, kind = unpack_from(">I4s", data, end)
        start, end = end, end + 12 + length
        (crc,) = unpack_from(">I", data, end - 4)
        if crc != zlib.crc32(data[start + 4 : end - 4]):
            raise ValueError(_DAMAGED)
        kinds.append(kind)
    if kinds[0] != b"IHDR" or b"IDAT" not in kinds:
        raise ValueError(_DAMAGED)
    if end != len(data):
        raise ValueError(_TRAILING)
    width, height = unpack_from(">II", data, 16)
    return width, height


_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """JPEG (ITU T.81 annex B): segments behind markers, and scans, which end at a marker."""
    size = None
    for marker, start in _jpeg_segments(data):
        # Frame headers; C4, C8 and CC are tables of other kinds.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = unpack_from(">HH", data, start + 3)
            size = width, height
    if size is None:
        raise ValueError(_DAMAGED)
    return size


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Each marker with the place behind it, up to the end of the image."""
    at = 2
    while True:
        start, marker = unpack_from("BB", data, at)
        if start != 0xFF:
            raise ValueError(_DAMAGED)
        at += 1 if marker == 0xFF else 2  # any number of FF may stand before a marker
        if marker == 0xD9:
            break
        if marker in (0x01, 0xFF, *range(0xD0, 0xD8)):
            continue
        yield marker, at
        at += unpack_from(">H", data, at)[0]
        if marker == 0xDA:
            found = _END_OF_SCAN.search(data, at)
            if found is None:
                raise ValueError(_DAMAGED)
            at = found.start()
    if at != len(data):
        raise ValueError(_TRAILING)


def _webp_size(data: bytes) -> tuple[int, int]:
    """WebP (RFC 9649): RIFF, whose first chunk has the size."""
    (length,) = unpack_from("<I", data, 4)
    if length + 8 != len(data):
        raise ValueError(_TRAILING if length + 8 < len(data) else _DAMAGED)
    end = 12
    while end < len(data):
        (length,) = unpack_from("<I", data, end + 4)
        end += 8 + length + length % 2
    if end != len(data):
        raise ValueError(_DAMAGED)
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= 30:
        return (
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
        )
    raise ValueError(_DAMAGED)


_RASTER = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n"), _png_size),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff"), _jpeg_size),
    ("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL), _webp_size),
)
