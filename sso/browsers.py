"""A browser's name for people, from its User-Agent."""

from ua_parser import parse


def name(user_agent: str) -> str:
    """Such as "Firefox on Ubuntu"; never longer than a line."""
    found = parse(user_agent)
    browser = found.user_agent.family if found.user_agent else ""
    system = found.os.family if found.os else ""
    known = " on ".join(part for part in (browser, system) if part and part != "Other")
    return known[:80] or "Unknown browser"
