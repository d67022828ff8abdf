"""Small images of each type, 8 by 4 pixels, as Chromium writes them; and PNG of any size."""

import base64
import struct
import zlib

JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERX"
    "RTc4UG1RV19iZ2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj"
    "Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2P/wAARCAAEAAgDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAA"
    "AAT/xAAdEAACAgIDAQAAAAAAAAAAAAABAgAEAxESISKh/8QAFQEBAQAAAAAAAAAAAAAAAAAAAwb/xAAXEQEBAQEA"
    "AAAAAAAAAAAAAAABAAOh/9oADAMBAAIRAxEAPwCZquEWbCBPKVhkUbPTcVO/piIgtSZq8v/Z"
)
WEBP_LOSSY = base64.b64decode(
    "UklGRlAAAABXRUJQVlA4IEQAAADQAQCdASoIAAQAAsBMJbACdAD0gdD1AAD+rNU8r5Wvy2WUc0WZVZEvaJL83AfJ"
    "jtkX/zNyhm8v/MJi/7y7vv5N/IAAAA=="
)
WEBP_EXTENDED = base64.b64decode(
    "UklGRmIAAABXRUJQVlA4WAoAAAAAAAAABwAAAwAAVlA4IEQAAADQAQCdASoIAAQAAsBMJbACdAD0gdD1AAD+rNU8"
    "r5Wvy2WUc0WZVZEvaJL83AfJjtkX/zNyhm8v/MJi/7y7vv5N/IAAAA=="
)
WEBP_LOSSLESS = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvB8AAEAcQERGIiP4HAA==")
SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 4"><rect width="8" height="4"/></svg>'
)
PAGE = b"<!doctype html><script>alert(1)</script>"


def png(width: int = 8, height: int = 4, rows: int | None = None) -> bytes:
    """A PNG that claims this size; it has so many rows."""
    raw = (b"\0" + b"\x80" * width) * (height if rows is None else rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, chunks))


def _chunk(chunk: tuple[bytes, bytes]) -> bytes:
    kind, body = chunk
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


PNG = png()
EVERY = {
    "PNG": (PNG, "image/png"),
    "JPEG": (JPEG, "image/jpeg"),
    "lossy WebP": (WEBP_LOSSY, "image/webp"),
    "lossless WebP": (WEBP_LOSSLESS, "image/webp"),
    "extended WebP": (WEBP_EXTENDED, "image/webp"),
    "SVG": (SVG, "image/svg+xml"),
}
