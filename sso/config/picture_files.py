"""Pictures of people: decoded, cropped to a square, and encoded again in one size.

So nothing of the file remains but what it shows: no metadata, no other frames, and nothing that is
appended. Size and type are checked in the header before anything is decoded, and again by Pillow.

Import this late: Pillow takes 5 MB.
"""

import threading
from dataclasses import dataclass
from io import BytesIO

from PIL import Image, ImageOps

# Registers the format, which Pillow otherwise does together with forty others.
from PIL import WebPImagePlugin as WebPImagePlugin

from sso.config import images
from sso.i18n.message import Message
from sso.process import concurrency

MAX_BYTES = 5 * 1024 * 1024
SIDE = 256  # pixels
MEDIA_TYPE = images.JPEG  # which every application can read, and which has no transparency
_QUALITY = 85
# A progressive JPEG is kept in memory as coefficients, 6 or 8 bytes for each pixel; other formats
# take 4 bytes, several times. So a picture takes up to 200 MB while it is decoded.
_MAX_PIXELS = {images.JPEG: 25_000_000, images.PNG: 10_000_000, images.WEBP: 10_000_000}
_MAX_SIDE = 16_384  # pixels
_MAX_SCANS = 32  # cameras and programs write about ten
_FORMATS = {images.JPEG: "JPEG", images.PNG: "PNG", images.WEBP: "WEBP"}
Image.MAX_IMAGE_PIXELS = max(_MAX_PIXELS.values())
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_turn = threading.Lock()  # one at a time in a process: for the memory


@dataclass(frozen=True)
class Picture:
    """A picture as it is stored and served; only `read` makes one."""

    data: bytes


def read(data: bytes) -> Picture:
    """Make a picture from an uploaded file. Raises `ValueError` with the remedy.

    No transaction may be open in a request: others run meanwhile.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(
            Message("it is larger than %(most)d MB; scale it down", most=MAX_BYTES // 1024**2)
        )
    header = images.raster_header(data)
    if header is None:
        raise ValueError(Message("it is neither PNG, JPEG nor WebP"))
    media_type, width, height = header
    images.check_size(width, height, _MAX_SIDE, _MAX_PIXELS[media_type])
    if media_type == images.JPEG and images.jpeg_scans(data) > _MAX_SCANS:
        raise ValueError(images.DAMAGED)
    with concurrency.slot_released(), _turn:
        return Picture(_converted(data, media_type))


def _converted(data: bytes, media_type: str) -> bytes:
    try:
        with Image.open(BytesIO(data), formats=[_FORMATS[media_type]]) as image:
            images.check_size(image.width, image.height, _MAX_SIDE, _MAX_PIXELS[media_type])
            # Decoded as JPEG can: at the smallest scale that has enough pixels.
            image.draft("RGB", (2 * SIDE, 2 * SIDE))
            square = _square(image)
    except MemoryError:
        raise
    except Exception:  # Pillow raises almost any of them for a damaged file
        raise ValueError(images.DAMAGED) from None
    encoded = BytesIO()
    square.save(encoded, _FORMATS[MEDIA_TYPE], quality=_QUALITY, optimize=True)
    return encoded.getvalue()


def _square(image: Image.Image) -> Image.Image:
    """Return the middle of an image, upright and on white, without any metadata."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of gray
        upright = upright.convert("I").point(lambda value: value / 256).convert("L")
    is_transparent = upright.mode in _WITH_ALPHA or "transparency" in upright.info
    upright = upright.convert("RGBA" if is_transparent else "RGB")
    cropped = ImageOps.fit(upright, (SIDE, SIDE))
    # Pillow would write a comment or XMP of the original.
    plain = Image.new("RGB", (SIDE, SIDE), "white")
    plain.paste(cropped, mask=cropped if is_transparent else None)
    return plain
