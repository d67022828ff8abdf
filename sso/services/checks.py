"""What may be registered of a client or a user, and why not: every error at once.

Client metadata has the names of RFC 7591.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sso import clock
from sso.config import images
from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD
from sso.config.urls import (
    call_error,
    home_url_error,
    refused,
    registration_error,
    strict_url_error,
)
from sso.crypto.keys import ALGORITHMS
from sso.errors import OperatorError
from sso.flow.scopes import OPERATOR_CLAIMS, SCOPES
from sso.i18n import times
from sso.i18n.message import Message
from sso.services import profiles

ID_TOKEN_CLAIMS = ("standard", "all")
ADDRESS, PHONE_VERIFIED = "address", "phone_number_verified"
NAME = Message("the name")
MAX_CLAIM = 2000
_FARTHEST_EAST = timedelta(hours=14)  # of the time zone where each day begins first
_BIRTHDATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})-([0-9]{2}))?")
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,8}")  # RFC 5646 §2.1
MAX_TEXT = 200
MAX_URLS = 100
MAX_GROUPS = 100  # of a user or a client
MAX_OPTIONS = 100  # of a preset
MAX_LOGO = 64 * 1024
MAX_JWKS = 64 * 1024


class RegistrationError(OperatorError, ValueError):
    """What was given cannot be registered; `errors` has one line for each reason."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = list(errors)


def metadata_errors(metadata: Mapping[str, Any], had: Collection[str] = ()) -> list[str]:
    """Why a client cannot have this metadata; `had`: the groups it has so far."""
    errors: list[str | None] = [text_error(Message("the client's name"), metadata["client_name"])]
    if not metadata["redirect_uris"]:
        errors.append(Message("there is no redirect address; an application needs at least one"))
    is_public = metadata["token_endpoint_auth_method"] == NO_AUTH_METHOD
    error_of = partial(registration_error, is_public=is_public)
    for name, label, too_many in (
        (
            "redirect_uris",
            Message("the redirect address"),
            Message("there are more than %(most)d redirect addresses", most=MAX_URLS),
        ),
        (
            "post_logout_redirect_uris",
            Message("the post-logout redirect address"),
            Message("there are more than %(most)d post-logout redirect addresses", most=MAX_URLS),
        ),
    ):
        is_too_many = len(metadata[name]) > MAX_URLS
        errors += [too_many] if is_too_many else _url_errors(label, metadata[name], error_of)
    backchannel = metadata.get("backchannel_logout_uri")
    if backchannel is not None:
        errors += _url_errors(
            Message("the back-channel logout address"), [backchannel], _backchannel_error
        )
    if (home_url := metadata.get("home_url")) is not None:
        errors += _url_errors(Message("the home URL"), [home_url], home_url_error)
    errors.append(_scope_error(metadata["scope"]))
    if "preset" in metadata:
        errors.append(_preset_error(metadata["preset"]))
    errors += group_errors(metadata["groups"], had)
    errors += profiles.errors(metadata)
    for name, label, choices in (
        (
            "token_endpoint_auth_method",
            Message("the authentication method"),
            (*AUTH_METHODS, NO_AUTH_METHOD),
        ),
        ("id_token_signed_response_alg", Message("the identity token algorithm"), ALGORITHMS),
        ("id_token_claims", Message("the choice of identity token claims"), ID_TOKEN_CLAIMS),
    ):
        if metadata[name] not in choices:
            errors.append(profiles.none_of(label, metadata[name], choices))
    return [error for error in errors if error]


def text_error(label: Message, text: str) -> Message | None:
    """Why a name is not short, visible text in one line, or `None`."""
    if not text.strip():
        return Message("%(label)s is empty", label=label)
    if len(text) > MAX_TEXT:
        return Message("%(label)s is longer than %(most)d characters", label=label, most=MAX_TEXT)
    if any(c < " " or "\x7f" <= c < "\xa0" or "\ud800" <= c <= "\udfff" for c in text):
        return Message("%(label)s has control characters or is not UTF-8", label=label)
    return None


def taken(email: str) -> Message:
    """That another user has the address."""
    return Message("there is already a user with the email address %(email)s", email=email)


def logo(text: str, folder: Path = Path()) -> images.Image:
    """The logo of an application: a path, a data URL, or "" for none. Raises `RegistrationError`.

    A relative path is one from the folder.
    """
    try:
        if text.startswith("data:"):
            return images.from_data_url(text, MAX_LOGO)
        return images.read(folder / text, MAX_LOGO) if text else images.NO_IMAGE
    except ValueError as error:
        raise RegistrationError([f"the logo {text[:MAX_TEXT]!r} is refused: {error}"]) from None


def jwks(path: Path) -> dict[str, Any]:
    """The key set in a file; a single JWK counts as a set. Raises `RegistrationError`."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError(0, "there is no such file")
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_JWKS))
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        reason = f"it is not JSON of at most {MAX_JWKS} bytes"
    else:
        return {"keys": [found]} if isinstance(found, dict) and "kty" in found else found
    raise RegistrationError([f"the key set {str(path)[:MAX_TEXT]!r} is refused: {reason}"])


def group_errors(groups: Collection[str], had: Collection[str]) -> list[str]:
    """Why groups cannot be given; those that a user or client has already may stay."""
    kept = set(had)
    added = {group: None for group in groups if group not in kept}
    if added and len(set(groups)) > MAX_GROUPS:
        return [Message("there are more than %(most)d groups", most=MAX_GROUPS)]
    return [error for group in added if (error := _group_error(group))]


def claim_errors(claims: Mapping[str, Any]) -> list[str]:
    """Why an operator cannot set these claims; `None` stands for one that is removed."""
    return [error for name, value in claims.items() if (error := _claim_error(name, value))]


def _group_error(name: str) -> Message | None:
    """Lists show groups with commas between them."""
    if error := text_error(Message("a group's name"), name):
        return error
    if "," in name:
        return Message(
            "the group's name %(name)s has a comma; give each group by itself", name=repr(name)
        )
    if name != name.strip():
        return Message("the group's name %(name)s begins or ends with a space", name=repr(name))
    return None


def _url_errors(
    label: Message, urls: Iterable[str], error_of: Callable[[str], Message | None]
) -> list[Message]:
    return [refused(label, text, error) for text in urls if (error := error_of(text))]


def _backchannel_error(text: str) -> Message | None:
    """OIDC Back-Channel Logout §2.2: absolute, no fragment; we call it, so it is http or https."""
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme not in ("http", "https"):
        return Message("it is neither http nor https")
    return Message("it has a fragment") if "#" in text else call_error(text)


def _scope_error(scope: str) -> Message | None:
    known = ", ".join(SCOPES)
    unknown = [name for name in scope.split() if name not in SCOPES]
    if unknown:
        return Message(
            "unknown scopes: %(unknown)s; known: %(known)s",
            unknown=", ".join(map(repr, unknown)),
            known=known,
        )
    return None if scope.split() else Message("there is no scope; known: %(known)s", known=known)


def _preset_error(preset: Any) -> Message | None:
    """The shape alone: what a later version no longer knows may stay."""
    url, options = preset.get("url", "-"), preset.get("options", {})
    texts = [preset.get("name"), url, *(options.values() if isinstance(options, dict) else [None])]
    are_texts = all(isinstance(one, str) and len(one) <= MAX_CLAIM for one in texts)
    if are_texts and preset.keys() <= {"name", "url", "options"} and len(texts) <= MAX_OPTIONS:
        return None
    return Message("the preset is not a name, a url and options, all of them texts")


def _claim_error(name: str, value: Any) -> Message | None:
    if name not in OPERATOR_CLAIMS:
        known = ", ".join(sorted(OPERATOR_CLAIMS))
        return Message(
            "the claim %(name)s is not one that can be set; known: %(known)s",
            name=repr(name),
            known=known,
        )
    if value is None:
        return None
    if name == ADDRESS:
        if isinstance(value, dict) and value and all(_is_text(part) for part in value.values()):
            return None
        return Message(
            "the claim %(name)s is no JSON object of texts (OIDC Core §5.1.1), such as %(example)s",
            name=repr(name),
            example='{"locality": "Delft"}',
        )
    if name == PHONE_VERIFIED:
        if isinstance(value, bool):
            return None
        return Message("the claim %(name)s is neither true nor false", name=repr(name))
    if not _is_text(value):
        return Message(
            "the claim %(name)s is no clean text of at most %(most)d characters",
            name=repr(name),
            most=MAX_CLAIM,
        )
    if (error_of := _CLAIM_FORMATS.get(name)) and (error := error_of(value)):
        return Message("the claim %(name)s is refused: %(reason)s", name=repr(name), reason=error)
    return None


def _web_error(text: str) -> Message | None:
    """Return an error unless a URL is http or https: applications show it as a link or image."""
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme not in ("http", "https"):
        return Message("it is neither http nor https")
    return None


def _birthdate_error(text: str) -> Message | None:
    """Check for ISO 8601 YYYY-MM-DD, with 0000 for an unknown year, or YYYY (OIDC Core §5.1)."""
    latest = (clock.now() + _FARTHEST_EAST).date()
    match = _BIRTHDATE.fullmatch(text)
    try:
        year, month, day = (int(part or 1) for part in match.groups()) if match else (0, 0, 0)
        # 2000 is a leap year, so it has every day.
        is_past = date(2000 if year == 0 and match and match[2] else year, month, day) <= latest
    except ValueError:
        return Message("it is no date such as 1990-01-31, 0000-01-31 or 1990")
    return None if is_past else Message("it is in the future")


def _zone_error(text: str) -> Message | None:
    try:
        times.checked_zone(text)
    except ValueError:
        return Message("it is no time zone such as Europe/Berlin")
    return None


def _locale_error(text: str) -> Message | None:
    return None if _LOCALE.fullmatch(text) else Message("it is no language such as de or pt-BR")


_CLAIM_FORMATS: Mapping[str, Callable[[str], Message | None]] = {
    **dict.fromkeys(("profile", "picture", "website"), _web_error),
    "birthdate": _birthdate_error,
    "zoneinfo": _zone_error,
    "locale": _locale_error,
}


def _is_text(value: Any) -> bool:
    """Text that a database and a token can hold; an address has lines (OIDC Core §5.1.1)."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_CLAIM
        and not any((c < " " and c not in "\r\n") or "\ud800" <= c <= "\udfff" for c in value)
    )
