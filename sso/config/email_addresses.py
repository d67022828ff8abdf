"""Email addresses: one spelling for each, valid by RFC 5322 and RFC 6531."""

import email_validator
from email_validator import EmailNotValidError, ValidatedEmail, validate_email

# Begins what a mail program decodes in a header (RFC 2047): into another address, or a line end.
ENCODED_WORD = "=?"
LONGEST = 320  # characters: 64 before the at sign, 255 behind it (RFC 5321 §4.5.3.1)

# Domains that mail from the internet cannot reach: the library's list of special-use names
# (IANA), what RFC 6762 appendix G and ICANN leave to private networks, and RFC 9476.
_PRIVATE = frozenset(
    (
        *email_validator.SPECIAL_USE_DOMAIN_NAMES,
        *("internal", "intranet", "lan", "home", "corp", "private", "localdomain", "alt"),
    )
)
# An operator may register every one of them. The library has no parameter for that, but says that
# this list may be changed; `is_public` asks ours.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()


def normalized(text: str) -> str:
    """The one spelling under which an address is stored. Raises `ValueError` with the reason.

    Any domain is accepted, `corp.local` and `localhost` included: it may be known in the network
    where the server runs. Ask `is_public` about an address that a stranger gives.
    """
    return _validated(text.strip()).normalized.lower()


def is_public(address: str) -> bool:
    """Whether its domain is one that mail from the internet may reach (RFC 6761); asks no DNS."""
    try:
        domain = _validated(address, globally_deliverable=True).ascii_domain.lower()
    except ValueError:
        return False
    labels = domain.split(".")
    return not any(".".join(labels[start:]) in _PRIVATE for start in range(len(labels)))


def for_smtp(address: str) -> str:
    """The address with its domain in ASCII, as every mail server takes it (RFC 5891)."""
    found = _validated(address)
    return f"{found.local_part}@{found.ascii_domain}"


def domain(address: str) -> str:
    """What stands behind the at sign."""
    return address.rpartition("@")[2]


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
        raise ValueError(f"{ENCODED_WORD} is not taken in an address")
    return found
