"""The operator's own templates, mail texts and style: docs/reference/templates.md is the contract.

All of it is checked at the start.
"""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from string import Formatter
from typing import Any

from sso.config import override_checks
from sso.config.checks import ManyErrors
from sso.i18n.languages import LANGUAGES

BUILT_IN = Path(__file__).resolve().parents[1] / "templates"
TEXTS = "mail/texts.toml"
STYLE = "custom.css"
_MAX_SIZE = 64 * 1024
_TEXT = ("heading", "intro", "help")
_ON_MAILS = ("subject", "name", "link", "action", "base_url", "button_color")

# The blocks of each template, and the variables in them beside those that are everywhere.
BLOCKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "base.html": (("logo", "announcement", "footer"), ()),
    "sign_in.html": (_TEXT, ("client_name", "reauthenticate")),
    "second_factor.html": (_TEXT, ()),
    "select_account.html": (_TEXT, ("client_name",)),
    "consent.html": (("heading", "help"), ("client_name",)),
    "forbidden.html": (_TEXT, ("client_name",)),
    "sign_up.html": (_TEXT, ()),
    "complete_sign_up.html": (_TEXT, ("user_email",)),
    "forgotten_password.html": (_TEXT, ()),
    "new_password.html": (_TEXT, ("user_email", "invited")),
    "mail_sent.html": (("help",), ()),
    "error.html": (("help",), ("client_name",)),
    "sign_out.html": (("heading", "help"), ("client_name",)),
    "signed_out.html": (_TEXT, ()),
    "mail/message.html": (("header", "footer"), _ON_MAILS),
    "mail/message.txt": (("header", "footer"), _ON_MAILS),
}

# What can stand in braces in the texts of each kind of mail, beside {service} and {address}.
PLACEHOLDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("verify", "change_email", "reset"), ()),
    "invite": ("until",),
    "sign_up": (),
    "directory_password": ("provider",),
    "known_address": (),
    "email_change_asked": ("new_address",),
    "email_changed": ("new_address",),
    "account_deleted": (),
    "password_changed": (),
    "new_browser": ("browser", "network", "time"),
    "factor_added": ("factor",),
    "factor_removed": ("factor",),
    "identity_added": ("provider", "account"),
    "identity_removed": ("provider", "account"),
    "recovery_code_used": ("left",),
    "recovery_codes_made": (),
    "second_step_missing": ("browser", "network", "time"),
    "enrolment_code": ("code",),
}
_MADE_FOR = re.compile(r"\A\{?# made for ([0-9a-f]{8})\b")


@dataclass
class Overrides:
    """Checked: templates by name, the texts of mails by kind and language, rules of CSS."""

    templates: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    texts_source: str = ""
    style: str = ""


def checked(text: str) -> str:
    """The folder as given. Raises `ManyErrors`, one for each fault in it."""
    read(Path(text))
    return text


def read(folder: Path) -> Overrides:
    """Everything in the folder. Raises `ManyErrors`."""
    found, errors = Overrides(), list(_unsafe(folder))
    for path in () if errors else sorted(_files(folder)):
        name = path.relative_to(folder).as_posix()
        known = [*BLOCKS, TEXTS, STYLE]
        if name not in known:
            close = get_close_matches(name, known, n=1)
            errors.append(
                f"{name}: no template of this name can be overridden"
                + (f"; did you mean {close[0]}?" if close else "; remove it, or see the list")
            )
            continue
        faults = list(_unsafe_file(path, folder))
        if not faults:
            try:
                source = path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                faults = ["it cannot be read as UTF-8; check the file and its mode"]
            else:
                faults = list(_take(name, source, found))
        errors += [f"{name}: {fault}" for fault in faults]
    if errors:
        raise ManyErrors(errors)
    return found


def _unsafe(folder: Path) -> Iterator[str]:
    """Anyone who can write here can ask for passwords: it must be as safe as the program."""
    if not folder.is_dir():
        yield "it is not a folder that this user can read; give the path of one"
        return
    real = folder.resolve()
    for one in (real, *real.parents):
        is_sticky = one.stat().st_mode & stat.S_ISVTX
        if _is_open(one) and (one == real or not is_sticky):
            yield f"everyone can write to {one}; run: chmod o-w {one}"


def is_read_only(path: Path) -> bool:
    """Whether it is mounted so, as a ConfigMap of Kubernetes is, whose modes say otherwise."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IWOTH) and not is_read_only(path)


def _files(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "mail"):
        for path in place.iterdir() if place.is_dir() else ():
            # Editors and Kubernetes leave hidden ones.
            if path.suffix in (".html", ".txt", ".toml", ".css") and not path.name.startswith("."):
                yield path


def _unsafe_file(path: Path, folder: Path) -> Iterator[str]:
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        yield "it is a link that leads out of the folder; copy the file into it"
    elif not real.is_file():
        yield "it is not a file"
    elif real.stat().st_size > _MAX_SIZE:
        yield f"it is larger than {_MAX_SIZE // 1024} kB"
    elif _is_open(real) or _is_open(real.parent):
        yield f"everyone can write to it; run: chmod -R o-w {folder}"


def _take(name: str, source: str, found: Overrides) -> Iterator[str]:
    if name == TEXTS:
        yield from _take_texts(source, found)
    elif name == STYLE:
        found.style = source
        yield from override_checks.style_errors(source)
    else:
        blocks, variables = BLOCKS[name]
        defined = found.blocks[name] = []
        yield from override_checks.errors_in(name, source, blocks, variables, defined)
        found.templates[name] = source


def _take_texts(source: str, found: Overrides) -> Iterator[str]:
    try:
        kinds = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        yield f"it is not TOML: {error}"
        return
    found.texts_source = source
    for kind, languages in kinds.items():
        if kind not in PLACEHOLDERS or not isinstance(languages, dict):
            close = get_close_matches(kind, PLACEHOLDERS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(PLACEHOLDERS)}"
            yield f"[{kind}] is no kind of mail; {hint}"
            continue
        for tag, text in languages.items():
            where = f"[{kind}.{tag}]"
            if tag not in LANGUAGES or not isinstance(text, dict):
                yield f"{where} is not one of the languages {', '.join(LANGUAGES)}"
                continue
            for fault in _text_errors(kind, text):
                yield f"{where} {fault}"
            found.texts[kind, tag] = text


def _text_errors(kind: str, text: dict[str, Any]) -> Iterator[str]:
    for name, value in text.items():
        if name == "paragraphs":
            fits = isinstance(value, list) and bool(value)
            parts = value if fits else []
        elif name in ("subject", "action"):
            fits, parts = True, [value]
        else:
            yield f"{name}: known are subject, paragraphs and action"
            continue
        if not fits or not all(isinstance(one, str) and one.strip() for one in parts):
            wanted = "a list of texts" if name == "paragraphs" else "a text"
            yield f"{name}: give {wanted}"
            continue
        if name != "paragraphs" and (len(value) > 200 or not value.isprintable()):
            yield f"{name}: give one line of at most 200 characters"
        yield from (f"{name}: {fault}" for one in parts for fault in _braces(kind, one))
    if kind == "enrolment_code" and "{code}" not in str(text.get("paragraphs", "{code}")):
        yield "paragraphs: they lack {code}, without which the mail is of no use"


def _braces(kind: str, text: str) -> Iterator[str]:
    known = ("service", "address", *PLACEHOLDERS[kind])
    try:
        parts = list(Formatter().parse(text))
    except ValueError:
        yield "a brace is open; write {{ and }} for braces themselves"
        return
    for _, name, spec, conversion in parts:
        if name is not None and (name not in known or spec or conversion):
            shown = ", ".join(f"{{{one}}}" for one in known)
            yield f"{{{name}}} is not known here; known are {shown}"


def made_for(source: str) -> str | None:
    """What a file says in its first line that it was made for: a `fingerprint`."""
    found = _MADE_FOR.match(source)
    return found[1] if found else None


def fingerprint(name: str, blocks: list[str]) -> str:
    """A digest of these blocks as they are built in: it differs once one of them changes.

    "" if they are all empty.
    """
    source = (BUILT_IN / name).read_text()
    bodies = (
        re.search(rf"{{% block {block} %}}(.*?){{% endblock %}}", source, re.DOTALL)
        for block in sorted(blocks)
    )
    texts = [found[1] if found else "" for found in bodies]
    return digest(*texts) if any(texts) else ""


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]
