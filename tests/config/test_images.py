"""Logos: what is served is an image of a known type, and nothing else."""

import os
import re
import struct
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sso.config import images
from tests.support.logos import (
    EVERY,
    JPEG,
    PAGE,
    PNG,
    SVG,
    WEBP_EXTENDED,
    WEBP_LOSSLESS,
    WEBP_LOSSY,
    png,
)

MOST = 64 * 1024
RASTER = [data for data, _ in EVERY.values() if data != SVG]


def refusal(data: bytes) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        images.parse(data, MOST)
    return str(caught.value)


@pytest.mark.parametrize("name", EVERY)
def test_the_content_decides_the_type(tmp_path: Path, name: str) -> None:
    data, media_type = EVERY[name]
    path = tmp_path / "logo.txt"
    path.write_bytes(data)
    found = images.read(path, MOST)
    assert (found.media_type, found.data) == (media_type, data)
    assert images.from_data_url(found.data_url, MOST) == found


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"\0" * (MOST + 1), "larger than 64 kB"),
        (PAGE, "neither PNG, JPEG, WebP nor SVG"),
        (b"GIF89a" + b"\0" * 40, "neither PNG, JPEG, WebP nor SVG"),
        (b"\0" * 100, "neither PNG, JPEG, WebP nor SVG"),
        (PNG[:8] + PAGE * 20, "damaged"),
        (PNG[:8] + PNG[33:], "damaged"),
        (JPEG[:20] + PAGE, "damaged"),
        (JPEG[:2] + JPEG[-2:], "damaged"),
        (WEBP_LOSSY[:12] + PAGE, "damaged"),
        (WEBP_LOSSY.replace(b"VP8 ", b"VP9 "), "damaged"),
        # Some kilobytes that a browser would make gigabytes of.
        (png(30_000, 30_000, rows=1), "30000 × 30000 pixels"),  # noqa: RUF001
        (png(4096, 4096, rows=1), "4096 × 4096 pixels"),  # noqa: RUF001
        (png(0, 4), "0 × 4 pixels"),  # noqa: RUF001
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    assert words in refusal(data)


def test_nothing_large_is_decoded_or_read(tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    with path.open("wb") as file:
        file.write(PNG)
        file.truncate(10_000_000)
    with pytest.raises(ValueError, match="larger than 64 kB"):
        images.read(path, MOST)


@pytest.mark.parametrize(
    ("data", "header"),
    [(PNG, 24), (JPEG, JPEG.index(b"\xff\xc0") + 9), (WEBP_LOSSY, 30), (WEBP_LOSSLESS, 25),
     (WEBP_EXTENDED, 30)],
)  # fmt: skip
def test_an_image_without_its_size(data: bytes, header: int) -> None:
    for end in range(header):
        assert refusal(data[:end])
    assert images.parse(data[:header], MOST)


def test_a_scan_before_the_size() -> None:
    """Browsers do not decode it; and what looks like a size in a scan is none."""
    frame = JPEG.index(b"\xff\xc0")
    scan = JPEG.index(b"\xff\xda")
    assert "damaged" in refusal(JPEG[:frame] + JPEG[scan:] + JPEG[frame:])


@given(st.sampled_from([*RASTER, SVG]), st.integers(0, 400), st.binary(max_size=40))
def test_a_changed_image_is_an_image_or_an_error(data: bytes, at: int, changed: bytes) -> None:
    try:
        found = images.parse(data[:at] + changed + data[at + len(changed) :], MOST)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert found.media_type.startswith("image/")


@given(st.binary(max_size=60))
@example(b"\xc0\0\x11\x08\0\x01\0\x01")  # begins with the size of an image
def test_a_jpeg_of_anything_ends(segments: bytes) -> None:
    try:
        image = images.parse(b"\xff\xd8\xff" + segments, MOST)
    except ValueError as error:
        assert re.search("damaged|pixels", str(error))
    else:
        frame = re.search(rb"\xff[\xc0-\xcf].{3}(.{2})(.{2})", b"\xff" + segments, re.DOTALL)
        assert frame
        assert image.media_type == "image/jpeg"


def test_a_jpeg_with_a_thumbnail_in_it_has_its_own_size() -> None:
    thumbnail = struct.pack(">2sH", b"\xff\xe1", 2 + len(JPEG)) + JPEG
    assert images.parse(JPEG[:20] + thumbnail + JPEG[20:], MOST)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.png", tmp_path, Path("a\0b")):
        with pytest.raises(ValueError, match="no such file"):
            images.read(path, MOST)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="no such file"):
        images.read(pipe, MOST)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    path.write_bytes(PNG)
    path.chmod(0)
    with pytest.raises(ValueError, match="cannot be read"):
        images.read(path, MOST)


def test_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "logo.png"
    path.write_bytes(PNG)
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(ValueError, match=r"cannot be read \(Permission denied\); check its mode"):
        images.read(path, MOST)


@pytest.mark.parametrize("url", ["data:", "data:image/png;base64,!", "data:image/png;base64,aGk="])
def test_data_urls_that_are_no_image(url: str) -> None:
    with pytest.raises(ValueError, match="it"):
        images.from_data_url(url, MOST)
