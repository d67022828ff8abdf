"""Email addresses: one spelling for each, valid by RFC 5322 and RFC 6531."""

import email_validator
from email_validator import EmailNotValidError, ValidatedEmail, validate_email

from sso.i18n.message import Message

# Starts what mail programs decode in a header (RFC 2047): into another address, or a line end.
ENCODED_WORD = "=?"
LONGEST = 320  # characters: 64 before the @, 255 after it (RFC 5321 §4.5.3.1)

# Domains that mail from the internet cannot reach: the library's list of special-use names
# (IANA), what RFC 6762 appendix G and ICANN leave to private networks, and RFC 9476.
_PRIVATE = frozenset(
    (
        *email_validator.SPECIAL_USE_DOMAIN_NAMES,
        *("internal", "intranet", "lan", "home", "corp", "private", "localdomain", "alt"),
    )
)
# Operators may register all of them. The library has no parameter for that, but documents that
# this list may be changed; `is_public` uses ours.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()


def normalized(text: str) -> str:
    """The spelling under which an address is stored. Raises `ValueError` with the reason.

    Any domain is accepted, including `corp.local` and `localhost`, which may be known in the
    network of the server. Check an address that a stranger gives with `is_public`.
    """
    return _validated(text.strip()).normalized.lower()


def refused(email: str, error: ValueError) -> Message:
    """Why `normalized` refused it."""
    return Message(
        "the email address %(email)s is not valid: %(reason)s",
        email=repr(email),
        reason=error.args[0],
    )


def is_public(email: str) -> bool:
    """Whether mail from the internet can reach its domain (RFC 6761). No DNS query is made."""
    try:
        domain = _validated(email, globally_deliverable=True).ascii_domain.lower()
    except ValueError:
        return False
    labels = domain.split(".")
    return not any(".".join(labels[start:]) in _PRIVATE for start in range(len(labels)))


def for_smtp(email: str) -> str:
    """The address with its domain in ASCII, which every mail server accepts (RFC 5891)."""
    found = _validated(email)
    return f"{found.local_part}@{found.ascii_domain}"


def domain(email: str) -> str:
    """The part after the @."""
    return email.rpartition("@")[2]


def sender(text: str) -> str:
    """The check of SSO_MAIL_FROM."""
    try:
        return normalized(text)
    except ValueError:
        raise ValueError("give an email address such as sso@example.com") from None


def domains(text: str) -> str:
    """The check of SSO_SIGN_UP: domains with spaces or commas between them."""
    found = text.replace(",", " ").lower().split()
    for one in found:
        try:
            normalized(f"a@{one}")
            known = "." in one
        except ValueError:
            known = False
        if not known:
            raise ValueError("give off, open, or domains such as example.com")
    return " ".join(found)


def _validated(text: str, globally_deliverable: bool = False) -> ValidatedEmail:
    if len(text) > LONGEST:  # the library looks at each character before it counts them
        raise ValueError("it is too long")
    try:
        # No DNS: an address may be registered before its domain, and where there is no network.
        found = validate_email(
            text, check_deliverability=False, globally_deliverable=globally_deliverable
        )
    except (EmailNotValidError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    if ENCODED_WORD in found.normalized:
        raise ValueError(f"{ENCODED_WORD} is not accepted in an address")
    return found
