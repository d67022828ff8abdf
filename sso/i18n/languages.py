"""The languages of pages and mails, and how one is chosen."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

from babel import Locale, negotiate_locale
from flask import Flask, g, has_request_context, request
from flask_babel import Babel, format_date, format_datetime, get_locale
from sqlalchemy.exc import SQLAlchemyError

# By their own names, as a person looks for them.
LANGUAGES = {
    "en": "English",
    "de": "Deutsch",
    "fr": "Français",
    "es": "Español",
    "ja": "日本語",
    "ar": "العربية",
}
DEFAULT = "en"


def init_app(app: Flask, chosen_by_account: Callable[[], str | None]) -> None:
    """Translate what is rendered for a request.

    `chosen_by_account` returns the language that the signed-in user has chosen.
    """

    def choose() -> str:
        return _choose(chosen_by_account)

    app.config["BABEL_DEFAULT_LOCALE"] = DEFAULT
    Babel(app, locale_selector=choose)
    app.extensions["sso.language"] = language  # see current.language
    app.jinja_env.globals.update(language=language, direction=direction)
    app.jinja_env.filters.update(moment=moment, day=day)


def ask_for(ui_locales: str | None) -> None:
    """Prefer what the application asks for (OIDC Core §3.1.2.1), in its order of preference."""
    if ui_locales:
        g.sso_ui_locales = ui_locales.split(" ")[:20]


def language() -> str:
    """The tag of the language in use (RFC 5646)."""
    return str(get_locale() or DEFAULT)


def direction() -> str:
    """`ltr` or `rtl`, for HTML."""
    found = get_locale() or Locale.parse(DEFAULT)
    return str(found.text_direction)


def moment(time: datetime) -> str:
    """A time in words, in UTC."""
    return f"{format_datetime(time, 'medium', rebase=False)} UTC"


def day(time: datetime) -> str:
    """A date in words, in UTC."""
    return str(format_date(time, "medium", rebase=False))


def known(tags: Iterable[str | None]) -> str | None:
    """The first of these tags that has a translation."""
    wanted = [tag.replace("-", "_")[:35] for tag in tags if tag]
    found = negotiate_locale(wanted, list(LANGUAGES))
    return str(found) if found else None


def _choose(chosen_by_account: Callable[[], str | None]) -> str:
    """What the application asks for, the account's setting, or the browser's."""
    if not has_request_context():
        return DEFAULT
    account = None
    with suppress(SQLAlchemyError):  # the page may be the one about the database
        account = chosen_by_account()
    settled = known(g.get("sso_ui_locales", [])) or known([str(account)] if account else [])
    return settled or request.accept_languages.best_match(list(LANGUAGES)) or DEFAULT
