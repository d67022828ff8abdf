"""A browser's name for people, from its User-Agent."""

from importlib import import_module

from flask_babel import gettext


def name(user_agent: str, unknown: str | None = None) -> str:
    """Return a name such as "Firefox on Ubuntu", on one line, or `unknown` if there is none."""
    found = import_module("ua_parser").parse(user_agent)  # late: 1.5 MB
    browser = found.user_agent.family if found.user_agent else ""
    system = found.os.family if found.os else ""
    parts = [part[:40] for part in (browser, system) if part and part != "Other"]
    if len(parts) == 2:
        return str(gettext("%(browser)s on %(system)s", browser=parts[0], system=parts[1]))
    return parts[0] if parts else unknown or str(gettext("Unknown browser"))
