"""Email addresses: one spelling for each, valid by RFC 5322 and RFC 6531."""

import email_validator
from email_validator import EmailNotValidError, ValidatedEmail, validate_email

from sso.i18n.message import Message

# The start of an encoded word (RFC 2047): mail programs may decode it into another address or a
# line end.
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
    """Return the spelling under which an address is stored. Raises `ValueError` with the reason.

    Any domain is accepted, including `corp.local` and `localhost`, which may be known in the
    network of the server. Check an address that a stranger gives with `is_public`.
    """
    return _validated(text.strip()).normalized.lower()


def refused(email: str, error: ValueError) -> Message:
    """Return why `normalized` refused an address."""
    return Message(
        "the email address %(email)s is not valid: %(reason)s",
        email=repr(email),
        reason=error.args[0],
    )


def is_public(email: str) -> bool:
    """Return whether mail from the internet can reach the domain (RFC 6761), without DNS."""
    try:
        domain = _validated(email, globally_deliverable=True).ascii_domain.lower()
    except ValueError:
        return False
    labels = domain.split(".")
    return not any(".".join(labels[start:]) in _PRIVATE for start in range(len(labels)))


def for_smtp(email: str) -> str:
    """Return the address with its domain in ASCII, for all mail servers (RFC 5891)."""
    validated = _validated(email)
    return f"{validated.local_part}@{validated.ascii_domain}"


def domain(email: str) -> str:
    """Return the part after the @."""
    return email.rpartition("@")[2]


def sender(text: str) -> str:
    """Check SSO_MAIL_FROM."""
    try:
        return normalized(text)
    except ValueError:
        raise ValueError("give an email address such as sso@example.com") from None


def domains(text: str) -> str:
    """Check the domains of SSO_SIGN_UP, which spaces or commas separate."""
    names = text.replace(",", " ").lower().split()
    for name in names:
        try:
            normalized(f"a@{name}")
            is_domain = "." in name
        except ValueError:
            is_domain = False
        if not is_domain:
            raise ValueError("give off, open, or domains such as example.com")
    return " ".join(names)


def _validated(text: str, globally_deliverable: bool = False) -> ValidatedEmail:
    if len(text) > LONGEST:  # the library looks at each character before it counts them
        raise ValueError("it is too long")
    try:
        # No DNS: an address may be registered before its domain, and where there is no network.
        validated = validate_email(
            text, check_deliverability=False, globally_deliverable=globally_deliverable
        )
    except (EmailNotValidError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    if ENCODED_WORD in validated.normalized:
        raise ValueError(f"{ENCODED_WORD} is not accepted in an address")
    return validated
