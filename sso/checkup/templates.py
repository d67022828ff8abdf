"""The operator's own templates and texts: which there are, and whether they are still right."""

from collections.abc import Iterator
from pathlib import Path

from sso import context
from sso.checkup.finding import Finding, Findings, at, ok, warning
from sso.config import mail_texts, overrides
from sso.config.overrides import BUILT_IN, STYLE, TEXTS, Overrides
from sso.i18n.message import Message

_NAME = "templates"


def templates() -> Findings:
    """Each was made for the built-in text that this version has."""
    folder = context.settings().templates_dir
    if folder is None:
        yield ok(_NAME, Message("all are built in"))
        return
    own = overrides.read(Path(folder))
    yield from _compared(own)
    if not (own.templates or own.texts or own.style):
        seen = Message("there is none in %(folder)s", folder=folder)
        yield warning(_NAME, seen, Message("remove SSO_TEMPLATES_DIR, or add some"))


def _compared(own: Overrides) -> Iterator[Finding]:
    for name, source in own.templates.items():
        blocks = own.blocks[name]
        current = overrides.fingerprint(name, blocks)
        yield _finding(f"{name} ({', '.join(blocks)})", source, current, str(BUILT_IN / name))
    if own.texts:
        kinds = sorted({kind for kind, _ in own.texts})
        current = overrides.digest(*(repr(mail_texts.TEXTS[kind]) for kind in kinds))
        place = mail_texts.__file__
        yield _finding(f"{TEXTS} ({', '.join(kinds)})", own.texts_source, current, place)
    if own.style:
        seen = Message("follows the built-in style sheet; look at the pages")
        yield ok(_NAME, at(STYLE, seen))


def _finding(what: str, source: str, current: str, place: str) -> Finding:
    made_for = overrides.made_for(source)
    if not current:
        return ok(_NAME, at(what, Message("replaces nothing that is built in")))
    if made_for == current:
        return ok(_NAME, at(what, Message("made for this version")))
    mark = f"# made for {current}"
    mark = mark if what.startswith(TEXTS) else f"{{{mark} #}}"
    if made_for:
        seen = Message("what is built in has changed since")
    else:
        seen = Message("it does not say what it was made for")
    hint = Message(
        "compare it with %(place)s, then let its first line be: %(mark)s", place=place, mark=mark
    )
    return warning(_NAME, at(what, seen), hint)
