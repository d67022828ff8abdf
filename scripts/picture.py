"""The picture of the benchmarks, from the figures in docs/explanation/benchmarks.md.

    .venv/bin/python -m scripts.picture

writes docs/assets/cpu.svg. Each server is compared with this one on the same kind of database.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explanation/benchmarks.md"
PICTURE = ROOT / "docs/assets/cpu.svg"
ENDPOINTS = ("code exchange", "userinfo")
OURS = "sso (gunicorn)"
TITLE = "CPU time per request"
NOTE = "node-oidc-provider is a library, here without a log and an audit trail."
_WIDTH, _LEFT, _ROW = 480, 154, 24
_STYLE = """text { font: 14px system-ui, sans-serif; fill: #1f2328; }
.page { fill: #ffffff; }
.bar { fill: #8c959f; }
.ours { fill: #0969da; }
.axis { stroke: #8c959f; }
.head, .own { font-weight: 600; }
.note { font-size: 12px; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; }
  .bar { fill: #6e7681; }
  .ours { fill: #4493f8; }
  .axis { stroke: #6e7681; }
}"""


def ratios(page: str) -> dict[str, dict[str, float]]:
    """For each endpoint the CPU time of each server, as a multiple of ours under gunicorn."""
    others = _table(page, "## Other servers")
    fronts = _table(page, "## gunicorn and granian")
    found: dict[str, dict[str, float]] = {}
    for endpoint in ENDPOINTS:
        found[endpoint] = {OURS: 1.0, "sso (granian)": float(fronts[endpoint]["ratio"])}
        for name, row in others.items():
            server, _, storage = name.partition(", ")
            ours = others.get(f"sso, {storage}", others["sso, SQLite"])
            if server != "sso" and (cell := re.match(r"[\d.]+", row[endpoint])):
                name = re.match(r"[^\d(]+", server)[0].strip()  # type: ignore[index]  # not empty
                found[endpoint][name] = float(cell[0]) / float(ours[endpoint])
    return found


def draw(found: dict[str, dict[str, float]]) -> str:
    """The picture, with the fastest server first."""
    most = max(max(one.values()) for one in found.values())
    unit = (_WIDTH - _LEFT - 56) / most
    parts: list[str] = []
    said: list[str] = []
    y = 28
    for endpoint, servers in found.items():
        y += 26
        parts.append(f'<text class="head" x="12" y="{y}">{endpoint.capitalize()}</text>')
        y += 10
        parts.append(f'<path class="axis" d="M{_LEFT - 0.5} {y}v{_ROW * len(servers)}"/>')
        ordered = sorted(servers.items(), key=lambda item: item[1])
        for name, ratio in ordered:
            own = name.startswith("sso")
            text = ' class="own"' if own else ""
            parts += [
                f'<text{text} x="{_LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(name)}</text>',
                f'<rect class="{"ours" if own else "bar"}" x="{_LEFT}" y="{y + 4}" '
                f'width="{unit * ratio:.1f}" height="{_ROW - 8}"/>',
                f'<text{text} x="{_LEFT + unit * ratio + 6:.1f}" y="{y + 17}">{ratio:.2g}</text>',
            ]
            y += _ROW
        said.append(f"{endpoint}: " + ", ".join(f"{name} {one:.2g}" for name, one in ordered))
    y += 4
    for note in (f"As a multiple of {OURS}. Shorter is better.", NOTE):
        y += 18
        parts.append(f'<text class="note" x="12" y="{y}">{note}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 14}" '
            f'width="{_WIDTH}" role="img" aria-labelledby="title description">',
            f'<title id="title">{TITLE}</title>',
            f'<desc id="description">As a multiple of {OURS}. {escape("; ".join(said))}.',
            f"{NOTE}</desc>",
            f"<style>{_STYLE}</style>",
            '<rect class="page" width="100%" height="100%" rx="6"/>',
            f'<text class="head" x="12" y="28">{TITLE}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def _table(page: str, heading: str) -> dict[str, dict[str, str]]:
    """The first table below the heading: by the first cell of a row, its cells by column."""
    rows = _rows(page.partition(f"\n{heading}\n")[2])
    names = next(rows)[1:]
    next(rows)  # the line below the names
    return {first: dict(zip(names, cells, strict=True)) for first, *cells in rows}


def _rows(text: str) -> Iterator[list[str]]:
    began = False
    for line in text.splitlines():
        if line.startswith("|"):
            began = True
            yield [cell.strip() for cell in line.strip("|").split("|")]
        elif began:
            return


if __name__ == "__main__":
    PICTURE.write_text(draw(ratios(PAGE.read_text())))
