"""E-mail addresses: one spelling for each, valid by RFC 5322 and RFC 6531."""

from email_validator import EmailNotValidError, validate_email

LONGEST = 320  # characters: 64 before the at sign, 255 behind it (RFC 5321 §4.5.3.1)


def normalized(text: str) -> str:
    """The one spelling under which an address is stored. Raises `ValueError` with the reason."""
    if len(text) > LONGEST:  # the library looks at each character before it counts them
        raise ValueError("it is too long")
    try:
        # No DNS: an address may be registered before its domain, and where there is no network.
        # Domains such as home.lan are deliverable in the networks that people run themselves.
        found = validate_email(text.strip(), check_deliverability=False, globally_deliverable=False)
    except (EmailNotValidError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    return found.normalized.lower()


def for_smtp(address: str) -> str:
    """The address with its domain in ASCII, as every mail server takes it (RFC 5891)."""
    try:
        found = validate_email(address, check_deliverability=False, globally_deliverable=False)
    except EmailNotValidError as error:
        raise ValueError(str(error)) from None
    return f"{found.local_part}@{found.ascii_domain}"


def domain(address: str) -> str:
    """What stands behind the at sign."""
    return address.rpartition("@")[2]
