"""Takes out of a text what must not be logged: a second line of defence behind careful callers."""

import re

HIDDEN = "…"
_SECRETS = re.compile(
    r"""
    (?P<ours>\bsso_[a-z]{2,5}_)[\w-]{40,}                       # what digests.make gave
  | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                            # a JSON Web Token
  | (?P<scheme>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{16,}             # an Authorization header
  | (?P<userinfo>://[^/\s:@]*:)[^/\s@]+(?=@)                     # a password in an address
  | (?P<query>(?<=[\w/])\?)(?=[^\s"'=]*=)[^\s"'<>]+              # a query: codes, sealed requests
  | (?P<field>\b(?:password|client_secret|code_verifier|access_token|refresh_token|id_token)
      \b["']?\s*[:=]\s*["']?)[^\s"'&,}]+                         # a field of a form or of JSON
    """,
    re.VERBOSE,
)


def redact(text: str) -> str:
    """The text without tokens, passwords and queries."""
    return _SECRETS.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    return (match[match.lastgroup] if match.lastgroup else "") + HIDDEN
