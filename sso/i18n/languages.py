"""The languages of pages and mails: which there are, and how one is chosen."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import ua_parser
from babel import Locale, negotiate_locale
from babel.numbers import format_decimal
from flask import Flask, g, has_request_context, request
from flask.globals import request_ctx
from flask_babel import Babel, Domain, get_locale, get_translations, gettext
from jinja2 import pass_eval_context
from jinja2.nodes import EvalContext
from markupsafe import Markup, escape
from sqlalchemy.exc import SQLAlchemyError

from sso.i18n.message import Message, Quote

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
# Embeddings, overrides and isolates (UAX #9).
_OVERRIDES = re.compile("[\u202a-\u202e\u2066-\u2069]")
_CODE = re.compile("`([^`]+)`")
# Words of ASCII, to the end of a sentence or clause; the marks around them are not part of them.
_LATIN = re.compile(r"[!-~]+(?:(?<![.,:;]) [!-~]+)*")
_OPENING, _CLOSING = "([\"'", ")]\"'.,:;"
_presets = Domain(domain="presets")  # reads a catalog when one of its texts is first needed


Source = Callable[[], str | None]
_parsed = lru_cache(Locale.parse)


def init_app(app: Flask, of_account: Source, of_browser: Source, default: str) -> None:
    """Translate what is rendered for a request.

    `of_account` returns the language that the signed-in user has chosen, and `of_browser` the one
    that was chosen in this browser.
    """

    def choose() -> Locale:
        return _parsed(_choose(of_account, of_browser, default))

    def to_choose_from() -> dict[str, str]:
        # A request for a host that cannot be has no URLs to lead to.
        return {} if request_ctx.url_adapter is None or _settled(of_account) else LANGUAGES

    app.config["BABEL_DEFAULT_LOCALE"] = DEFAULT
    Babel(app, locale_selector=choose)
    app.extensions["sso.language"] = language  # see current.language
    app.jinja_env.globals.update(
        language=language,
        direction=direction,
        languages_to_choose_from=to_choose_from,
        gettext=_gettext,
        _=_gettext,
    )
    app.jinja_env.filters.update(
        fault=fault, host=host, isolate=isolate, number=number, said=said, technical=technical
    )
    app.jinja_env.finalize = without_overrides


@pass_eval_context
def _gettext(context: EvalContext, text: str, /, **variables: Any) -> str:
    """Do as Flask-Babel's, which looks up the language five times for each text: 6 % of a page."""
    translation = _translation(get_locale(), text, context.autoescape, bool(variables))
    return translation % variables if variables else translation


@lru_cache(maxsize=2048)
def _translation(_: Locale | None, text: str, is_html: bool, has_variables: bool) -> str:
    translation = str(get_translations().ugettext(text))
    if is_html:
        translation = Markup(translation)  # noqa: S704 (our own text, as for Jinja)
    return translation if has_variables else translation % {}


def ask_for(ui_locales: str | None) -> None:
    """Prefer what the application asks for (OIDC Core §3.1.2.1), in its order of preference."""
    if ui_locales:
        g.sso_ui_locales = ui_locales.split(" ")[:20]


def language() -> str:
    """Return the tag of the language in use (RFC 5646)."""
    return str(get_locale() or DEFAULT)


def direction() -> str:
    """Return `ltr` or `rtl`, for HTML."""
    locale = get_locale() or Locale.parse(DEFAULT)
    return str(locale.text_direction)


def number(value: int) -> str:
    """Return a number with the separators of the page's language, in Western digits."""
    return str(format_decimal(value, locale=Locale.parse(language()), numbering_system="latn"))


def isolate(name: str) -> Markup:
    """Return a name as HTML, so that its direction and marks do not affect the text around it."""
    return Markup("<bdi>{}</bdi>").format(name)


def host(name: str) -> Markup:
    """Return a domain with its port as HTML, in which lines break after dots."""
    labels = Markup(".<wbr>").join(name.split("."))
    return Markup('<bdi dir="ltr">{}</bdi>').format(labels)


def said(text: str) -> Markup:
    """Return a service's text as HTML: translate a `Message`, and mark other text as English."""
    if not isinstance(text, Message):
        return Markup('<span lang="en" dir="ltr">{}</span>').format(text)
    variables = {name: _named(value) for name, value in text.variables.items()}
    return Markup(get_translations().ugettext(text.text)) % variables  # noqa: S704 (our own text)


def fault(text: str) -> Markup:
    """Return the error of a field as HTML: a `Message`, one of our texts, or one of WTForms.

    WTForms translates its own, and may quote what was sent.
    """
    return said(text) if isinstance(text, Message) else escape(get_translations().ugettext(text))


def _named(value: Any) -> Any:
    """Return a variable of a message as HTML."""
    if isinstance(value, Message):
        return said(value)
    if isinstance(value, Quote):
        return Markup('<bdi lang="en">{}</bdi>').format(value)
    return isolate(value) if isinstance(value, str) else value


def preset_text(text: str) -> str:
    """Return a text of a preset in the language in use."""
    return str(_presets.gettext(text))


def technical(text: str) -> Markup:
    """Text with `code` in it as HTML. Latin words keep their direction among Arabic ones."""
    is_rtl = direction() == "rtl"
    parts = _CODE.split(text)
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = Markup('<code dir="ltr">{}</code>').format(part)
        else:
            parts[number] = _with_latin(part) if is_rtl else escape(part)
    return Markup("").join(parts)


def _with_latin(text: str) -> Markup:
    html, end = Markup(), 0
    for match in _LATIN.finditer(text):
        latin = match[0].lstrip(_OPENING)
        start = match.end() - len(latin)
        latin = latin.rstrip(_CLOSING)
        html += escape(text[end:start])
        if latin:
            html += Markup('<bdi dir="ltr">{}</bdi>').format(latin)
        end = start + len(latin)
    return html + escape(text[end:])


def without_overrides(value: Any) -> Any:
    """What a template prints, without the marks by which a name would turn the text around it.

    They are of no use in names, and titles and error messages have no markup to isolate them.
    """
    if not isinstance(value, str) or value.isascii() or not _OVERRIDES.search(value):
        return value
    return type(value)(_OVERRIDES.sub("", value))


def known(tags: Iterable[str | None]) -> str | None:
    """Return the first of these tags that has a translation."""
    requested = [tag.replace("-", "_")[:35] for tag in tags if tag]
    language = negotiate_locale(requested, list(LANGUAGES))
    return str(language) if language else None


def _choose(of_account: Source, of_browser: Source, default: str) -> str:
    """Signed in: what the application asks for, or the account's setting.

    Without either: what was chosen in this browser, what the application asks for, what the
    browser prefers, or the operator's.
    """
    if not has_request_context():
        return DEFAULT
    requested, account = known(g.get("sso_ui_locales", [])), _settled(of_account)
    settled = requested or account if account else known([of_browser()]) or requested
    return settled or request.accept_languages.best_match(list(LANGUAGES)) or default


def _settled(of_account: Source) -> str | None:
    """Return the account's language, if there is one."""
    with suppress(SQLAlchemyError):  # the page may be the one about the database
        return known([str(of_account() or "")])
    return None


def browser_name(user_agent: str, unknown: str | None = None) -> str:
    """Return a name such as "Firefox on Ubuntu", on one line, or `unknown` if there is none."""
    parsed = ua_parser.parse(user_agent)
    browser = parsed.user_agent.family if parsed.user_agent else ""
    system = parsed.os.family if parsed.os else ""
    parts = [part[:40] for part in (browser, system) if part and part != "Other"]
    if len(parts) == 2:
        return str(gettext("%(browser)s on %(system)s", browser=parts[0], system=parts[1]))
    return parts[0] if parts else unknown or str(gettext("Unknown browser"))
