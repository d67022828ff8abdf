"""Pictures of people: files of every kind, and hostile ones."""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image, ImageCms

from sso.config import images, picture_files
from sso.config.picture_files import MAX_BYTES, SIDE
from tests.support.each import each
from tests.support.logos import PAGE, SVG, png

SECRET = b"taken at home"


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def quarters(width: int = 400, height: int = 400) -> Image.Image:
    """White above on the left, black elsewhere."""
    image = Image.new("RGB", (width, height))
    image.paste("white", (0, 0, width // 2, height // 2))
    return image


def private() -> Image.Exif:
    exif = Image.Exif()
    exif[0x010E] = SECRET.decode()
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0)})
    return exif


def shown(data: bytes) -> Image.Image:
    """Read a file, check that only the picture is left, and return it."""
    picture = picture_files.read(data).data
    image = Image.open(io.BytesIO(picture), formats=["JPEG"])
    assert (image.size, image.mode) == ((SIDE, SIDE), "RGB")
    assert image.info.keys() <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    assert not image.getexif()
    assert SECRET not in picture
    assert images.jpeg_scans(picture) == 1
    return image


def corners(image: Image.Image) -> list[bool]:
    """Which of the corners are bright: above, then below; left before right."""
    gray, near, far = image.convert("L").tobytes(), SIDE // 8, SIDE - SIDE // 8
    return [gray[SIDE * y + x] > 128 for y in (near, far) for x in (near, far)]


ABOVE_LEFT = [True, False, False, False]
GRAY = quarters().convert("L")
FILES: dict[str, Callable[[], bytes]] = {
    "JPEG": lambda: encoded(quarters(), "JPEG", exif=private(), comment=SECRET),
    "progressive JPEG": lambda: encoded(quarters(), "JPEG", progressive=True),
    "CMYK JPEG": lambda: encoded(quarters().convert("CMYK"), "JPEG"),
    "gray JPEG": lambda: encoded(GRAY, "JPEG"),
    "large JPEG": lambda: encoded(quarters(5000, 5000), "JPEG"),
    "PNG": lambda: encoded(quarters(), "PNG", exif=private()),
    "16-bit PNG": lambda: encoded(
        GRAY.convert("I").point(lambda value: value * 257).convert("I;16"), "PNG"
    ),
    "PNG with a palette": lambda: encoded(quarters().convert("P"), "PNG"),
    "1-bit PNG": lambda: encoded(GRAY.convert("1"), "PNG"),
    "gray PNG with alpha": lambda: encoded(GRAY.convert("LA"), "PNG"),
    "animated PNG": lambda: encoded(
        quarters(), "PNG", save_all=True, append_images=[Image.new("RGB", (400, 400), "white")]
    ),
    "WebP": lambda: encoded(quarters(), "WEBP", exif=private(), xmp=SECRET),
    "animated WebP": lambda: encoded(
        quarters(), "WEBP", save_all=True, append_images=[Image.new("RGB", (400, 400), "white")]
    ),
    "JPEG with a color profile": lambda: encoded(
        quarters(), "JPEG", icc_profile=ImageCms.ImageCmsProfile(
            ImageCms.createProfile("sRGB")
        ).tobytes() + SECRET
    ),
    "JPEG with a page behind it": lambda: encoded(quarters(), "JPEG") + PAGE + SECRET,
    "wide JPEG": lambda: encoded(quarters(400, 400).crop((-300, 0, 700, 400)), "JPEG"),
}  # fmt: skip


@each("kind", FILES)
def test_of_every_file_only_the_picture_remains(kind: str) -> None:
    assert corners(shown(FILES[kind]())) == ABOVE_LEFT


def test_what_is_transparent_becomes_white() -> None:
    clear = Image.new("RGBA", (300, 300), (0, 0, 0, 0))
    clear.paste((0, 0, 0, 255), (150, 0, 300, 300))
    for kind in ("PNG", "WEBP"):
        assert corners(shown(encoded(clear, kind))) == [True, False, True, False]
    palette = quarters().convert("P", palette=Image.Palette.ADAPTIVE, colors=2)
    black = palette.getpixel((399, 399))
    assert all(corners(shown(encoded(palette, "PNG", transparency=black))))


@pytest.mark.parametrize(
    ("orientation", "bright"),
    [(1, 0), (2, 1), (3, 3), (4, 2), (5, 0), (6, 1), (7, 3), (8, 2), (9, 0), (0, 0)],
)
def test_it_stands_upright(orientation: int, bright: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = shown(encoded(quarters(), "JPEG", exif=exif))
    assert [i for i, is_bright in enumerate(corners(image)) if is_bright] == [bright]


def test_a_tiny_one_gets_the_same_size() -> None:
    shown(encoded(Image.new("RGB", (1, 1)), "PNG"))
    shown(encoded(Image.new("RGB", (3000, 1)), "PNG"))


def bomb(width: int, height: int) -> bytes:
    """A PNG of many pixels in few bytes."""
    return png(width, height, rows=1)


def webp_of(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunk = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + size
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def many_scans() -> bytes:
    data = encoded(quarters(), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:start] + 1000 * data[start:-2] + data[-2:]


def two_sizes() -> bytes:
    """The header says 8 by 4 pixels, and the frame after it a lot."""
    data = encoded(Image.new("L", (8, 8)), "JPEG")
    start = data.index(b"\xff\xc0")
    frame = bytearray(data[start : start + 2 + int.from_bytes(data[start + 2 : start + 4], "big")])
    frame[5:9] = struct.pack(">HH", 60_000, 60_000)
    return (
        data[:start] + data[start : start + len(frame)] + bytes(frame) + data[start + len(frame) :]
    )


def text_bomb() -> bytes:
    body = b"Comment\0\0" + zlib.compress(b"x" * 50_000_000)
    chunk = struct.pack(">I", len(body)) + b"zTXt" + body
    chunk += struct.pack(">I", zlib.crc32(b"zTXt" + body))
    data = png(300, 300)
    return data[:33] + chunk + data[33:]


JPEG = encoded(quarters(), "JPEG")
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "neither"),
    "a page": (lambda: PAGE, "neither"),
    "SVG": (lambda: SVG, "neither"),
    "a GIF that is a page, too": (lambda: b"GIF89a/*" + PAGE, "neither"),
    "a real GIF": (lambda: encoded(quarters(), "GIF"), "neither"),
    "TIFF": (lambda: encoded(quarters(), "TIFF"), "neither"),
    "20 MB": (lambda: JPEG.ljust(20 * 1024 * 1024, b"\0"), "larger than 5 MB"),
    "one byte too many": (lambda: JPEG.ljust(MAX_BYTES + 1, b"\0"), "larger than 5 MB"),
    "a bomb": (lambda: bomb(20_000, 20_000), "20000 . 20000"),
    "too many pixels": (lambda: bomb(3200, 3200), "3200 . 3200"),
    "too long": (lambda: bomb(16_385, 1), "16385 . 1"),
    "no pixels": (lambda: bomb(0, 10), "0 . 10"),
    "a bomb of WebP": (lambda: webp_of(16_000, 16_000), "16000 . 16000"),
    "a JPEG of too many pixels": (
        lambda: encoded(Image.new("L", (5001, 5000)), "JPEG"), "5001 . 5000"
    ),
    "JPEG with many scans": (many_scans, "damaged"),
    "JPEG with two sizes": (two_sizes, "damaged"),
    "PNG with a text of 50 MB": (text_bomb, "damaged"),
    "a cut JPEG": (lambda: JPEG[: len(JPEG) // 2], "damaged"),
    "the head of a JPEG": (lambda: JPEG[:200], "damaged"),
    "a cut PNG": (lambda: encoded(Image.effect_noise((300, 300), 9), "PNG")[:9000], "damaged"),
    "a cut WebP": (lambda: encoded(Image.effect_noise((300, 300), 9), "WEBP")[:2000], "damaged"),
    "WebP without an image": (lambda: webp_of(300, 300), "damaged"),
}  # fmt: skip


@each("kind", REFUSED)
def test_other_files_are_refused(kind: str) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(ValueError, match=reason):
        picture_files.read(make())


def test_the_largest_ones_are_read() -> None:
    shown(JPEG.ljust(MAX_BYTES, b"\0"))
    shown(encoded(Image.new("L", (3200, 3125)), "PNG"))


def test_damage_at_any_byte_is_an_error_of_the_file() -> None:
    """Whatever Pillow raises."""
    for data in (
        encoded(quarters(40, 40), kind, exif=private()) for kind in ("JPEG", "PNG", "WEBP")
    ):
        for at in range(12, len(data), 7):
            damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            try:
                shown(damaged)
            except ValueError as error:
                assert str(error)
