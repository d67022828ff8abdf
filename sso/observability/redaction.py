"""Remove secrets from texts that are logged: a second line of defence behind careful callers.

Strangers choose these texts, up to a whole request line, so the work must grow linearly with the
text. Every quantifier is possessive (nothing is tried twice), and no match examines the text of the
previous one again. Quantifiers that match a secret have no upper bound, which would show the rest
of a longer secret; the text has one (`LONGEST`).
"""

import re

HIDDEN = "…"
LONGEST = 64 * 1024  # characters; the longest traceback that is worth reading

_LONGEST_NAME = 36  # of a parameter; a longer one may be a secret
_USER_INFO = re.compile(r"(://)[^/@]*+@")
# A query, up to the end of the word that it stands in: codes and signed requests.
_QUERY = re.compile(r"(?<=[\w/])\?[^\s\"']++")
_SECRETS = re.compile(
    r"""
    (?P<ours>\bsso_[a-z]{2,5}_)[\w-]{40,}+                         # a secret of secrets.make_secret
  | (?P<webhook>\bwhsec_)[\w+/=-]{32,}+                           # the secret of a webhook
  | \beyJ[\w-]{8,}+(?:\.[\w-]*+)*+                                 # a JSON Web Token, or its part
  | (?P<scheme>\b(?i:Bearer|Basic)\s++)[\w.~+/=-]{16,}+            # an Authorization header
  | (?P<userinfo>://[^/\s:@]*+:)[^/\s@]++(?=@)                     # a password in a URL
  | (?P<field>(?:password|client_secret|code_verifier|access_token|refresh_token|id_token)
      \b["']?+\s*+[:=]\s*+(?:(?P<double>")|(?P<single>'))?+)        # a field of a form or of JSON
      (?(double)(?:\\.|[^"\\\n])++|(?(single)(?:\\.|[^'\\\n])++|[^\s"'&,}]++))
    """,
    re.VERBOSE,
)


def redact(text: str) -> str:
    """Return the text without tokens, passwords and queries; a very long text is cut."""
    if len(text) > LONGEST:
        text = _cut(text)
    if "?" in text and "=" in text:
        text = _QUERY.sub(_without_query, text)
    return _SECRETS.sub(_replacement, text)


def redact_url(url: str) -> str:
    """Return an untrusted URL for logs: parameter names without values, no fragment, no
    credentials.

    Applications that send the URL of their own page as the redirect_uri send codes in it.
    """
    head, hash_mark, _ = url[:LONGEST].partition("#")
    head, question_mark, query = head.partition("?")
    pairs = [part.partition("=") for part in query.split("&")] if query else []
    names = "&".join(
        (name if len(name) <= _LONGEST_NAME else HIDDEN) + (equals and f"={HIDDEN}")
        for name, equals, _ in pairs
    )
    head = redact(_USER_INFO.sub(rf"\1{HIDDEN}@", head))
    return head + question_mark + names + (hash_mark and f"#{HIDDEN}")


def _cut(text: str) -> str:
    """Cut a text, and remove its last word, which may be the first part of a secret."""
    parts = text[:LONGEST].rsplit(None, 1)
    return (parts[0] + " " if len(parts) == 2 else "") + HIDDEN


def _without_query(match: re.Match[str]) -> str:
    return "?" + HIDDEN if "=" in match[0] else match[0]


def _replacement(match: re.Match[str]) -> str:
    return (match[match.lastgroup] if match.lastgroup else "") + HIDDEN
