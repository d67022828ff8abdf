"""An installation of an application: its URL and options, its registration and configuration."""

import re
import shlex
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from sso.config.client_fields import FIELDS
from sso.config.urls import ENDPOINTS, refused
from sso.i18n.message import Message
from sso.presets import application_url, loader, templates
from sso.presets.application_url import ApplicationUrl
from sso.presets.preset_file import Block, Preset, PresetError
from sso.process.program import COMMAND

MAX_OPTION = 200
_HARMLESS = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@+=-]*")
# What a path in SSO_BASE_URL may have, so that no file format needs it quoted.
_PLAIN_URL = re.compile(r"https?://[A-Za-z0-9._~/:\[\]-]+")


@dataclass(frozen=True)
class Installation:
    """A preset with its URL and a value for each option."""

    preset: Preset
    url: ApplicationUrl | None
    options: Mapping[str, str]

    @property
    def described(self) -> dict[str, Any]:
        """The field `preset` of the client."""
        url = {"url": self.url.url} if self.url else {}
        return {"name": self.preset.name, **url, "options": dict(self.options)}

    @property
    def place(self) -> str:
        """The host and path, which tell it from other installations."""
        return self.url.hostname_port + self.url.path if self.url else ""


@dataclass(frozen=True)
class Credentials:
    """What the application has to know of its client."""

    client_id: str
    client_secret: str
    client_name: str
    scope: str
    id_token_alg: str
    service_name: str  # of this server, on the button that leads here
    certificate: str = ""  # of this server, as PEM, for an application that speaks SAML


def missing(preset: Preset, url: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Return what is still to be given, and its meaning: `url`, or an option by its name."""
    meanings = {}
    if preset.url is not None and url is None:
        meanings["url"] = f"where {preset.title} is reached, such as {preset.url}"
    for name, option in preset.options.items():
        if option.default is None and name not in options:
            choices = f" ({', '.join(option.choices)})" if option.choices else ""
            example = f", such as {option.example}" if option.example else ""
            meanings[name] = (
                option.help.rstrip(".") + example if example else option.help
            ) + choices
    return meanings


def install(preset: Preset, url: str | None, options: Mapping[str, str]) -> Installation:
    """Check the URL and the options. Raises `PresetError` with every error."""
    errors: list[str] = []
    for name, meaning in missing(preset, url, options).items():
        given_as = "--url URL" if name == "url" else f"--option {name}=…"
        errors.append(f"{given_as} is missing: {meaning.rstrip('.')}")
    parsed = None
    if url is not None and preset.url is None:
        errors.append(f"{preset.title} has no address of its own; leave --url off")
    elif url is not None:
        try:
            parsed = application_url.parse(url)
        except ValueError as error:
            errors.append(refused(Message("the address"), url, error.args[0]))
    names = ", ".join(preset.options) or "it has none"
    errors += [f"{preset.title} has no option {name[:MAX_OPTION]!r}; options: {names}"
               for name in sorted(options.keys() - preset.options.keys())]  # fmt: skip
    values = {name: options.get(name, option.default) for name, option in preset.options.items()}
    for name, value in values.items():
        if value is not None and (problem := option_problem(preset, name, value)):
            errors.append(problem)
    if errors:
        raise PresetError(errors)
    return Installation(
        preset,
        parsed,
        {
            name: application_url.origin(value) if preset.options[name].is_origin else value
            for name, value in values.items()
            if value is not None
        },
    )


def option_problem(preset: Preset, name: str, value: str) -> Message | None:
    """Return why an option cannot have this value."""
    option, label = preset.options[name], Message("the option %(name)s", name=name)
    if option.choices:
        choices = ", ".join(option.choices)
        error = Message("%(label)s is none of %(choices)s", label=label, choices=choices)
        return None if value in option.choices else error
    if value == option.default:
        return None
    if problem := text_problem(label, value):
        return problem
    if option.is_origin:
        return _origin_problem(label, value)
    if name in loader.unquoted_options(preset) and not _HARMLESS.fullmatch(value):
        return Message(
            "%(label)s may have only letters, digits and %(signs)s",
            label=label,
            signs=". _ / : @ + = -",
        )
    return None


def _origin_problem(label: Message, value: str) -> Message | None:
    try:
        application_url.origin(value)
    except ValueError as error:
        return refused(label, value, error.args[0])
    return None


def text_problem(label: Message, text: str) -> Message | None:
    """Return why a text is not one visible line, or `None`."""
    if not text.strip():
        return Message("%(label)s is empty", label=label)
    if len(text) > MAX_OPTION:
        return Message("%(label)s is longer than %(most)d characters", label=label, most=MAX_OPTION)
    if any(_is_invisible(char) for char in text):
        return Message(
            "%(label)s has line breaks, control characters or invisible characters", label=label
        )
    return None


def _is_invisible(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")


def registration(installation: Installation, base_url: str) -> dict[str, Any]:
    """Return the fields of the client."""
    variables, registration = _variables(installation, base_url), installation.preset.registration

    def filled(value: Any) -> Any:
        if isinstance(value, tuple):
            return [filled(item) for item in value]
        return templates.render(value, variables) if isinstance(value, str) else value

    values = {
        field.name: filled(getattr(registration, field.preset.name))
        for field in FIELDS.values()
        if field.preset and _is_registered(field.name, installation.preset)
    }
    return {**values, "preset": installation.described}


def _is_registered(name: str, preset: Preset) -> bool:
    """Return whether a preset registers a field: what belongs to tokens is not of SAML."""
    return name in ("scope", "home_url") or name.startswith("saml_") == preset.is_saml


def home_url(installation: Installation, base_url: str) -> str | None:
    """Return the URL that starts the application."""
    url = installation.preset.registration.home_url
    return templates.render(url, _variables(installation, base_url)) if url else None


def setup(
    installation: Installation,
    credentials: Credentials,
    base_url: str,
    alternative: str | None = None,
) -> list[Block]:
    """Return the application's configuration, ready to paste, of one alternative or of all.

    Raises `PresetError` if the alternative is unknown, or if a format cannot hold a value.
    """
    preset = installation.preset
    if alternative and alternative not in preset.alternatives:
        names = ", ".join(preset.alternatives)
        raise PresetError([
            f"{preset.title} has no alternative {alternative[:MAX_OPTION]!r}; "
            + (f"alternatives: {names}" if names else "there is one way to set it up")
        ])  # fmt: skip
    for label, text in (
        (Message("the client's name"), credentials.client_name),
        (Message("this server's name"), credentials.service_name),
    ):
        if problem := text_problem(label, text):
            raise PresetError([problem])
    variables = _variables(installation, base_url) | vars(credentials)
    return [
        _filled(block, variables)
        for block in preset.setup
        if alternative is None or block.alternative in (None, alternative)
    ]


def _filled(block: Block, variables: Mapping[str, Any]) -> Block:
    try:
        return replace(
            block,
            title=templates.render(block.title, variables),
            where=templates.render(block.where, variables),
            text=templates.render(block.text, variables).strip("\n"),
        )
    except PresetError as error:
        hint = ", or another --alternative" if block.alternative else ""
        message = Message(
            "%(title)s: %(reason)s; choose another value",
            title=block.title,
            reason=error.errors[0],
            for_commands=f"{block.title}: {error}; choose another value{hint}",
        )
        raise PresetError([message]) from None


def _variables(installation: Installation, base_url: str) -> dict[str, Any]:
    if not _PLAIN_URL.fullmatch(base_url):
        raise PresetError(
            [Message("SSO_BASE_URL has characters that not every file format can hold")]
        )
    url = installation.url
    parts = {name: getattr(url, name) for name in templates.URL_PARTS} if url else {}
    return {
        **parts,
        "options": dict(installation.options),
        "issuer": base_url,
        "issuer_host": urlsplit(base_url).hostname,
        "discovery": f"{base_url}/.well-known/openid-configuration",
        "endpoints": {name: base_url + path for name, path in ENDPOINTS.items()},
        **{name: base_url + path for name, path in templates.SAML_URLS.items()},
    }


def example(preset: Preset) -> Installation:
    """Return an installation with the preset's own examples and defaults."""
    options = {
        name: option.example or next(iter(option.choices), f"your-{name.replace('_', '-')}")
        for name, option in preset.options.items()
        if option.default is None
    }
    return install(preset, preset.url, options)


def command(installation: Installation) -> str:
    """Return the command that registers it."""
    preset = installation.preset
    arguments = [COMMAND, "client", "create", "--preset", preset.name]
    if installation.url:
        arguments += ["--url", installation.url.url]
    for name, option in preset.options.items():
        if option.default != (value := installation.options[name]):
            arguments += ["--option", f"{name}={value}"]
    if preset.has_keys:
        arguments += [FIELDS["jwks"].flag, "public.json"]
    return shlex.join(arguments)
