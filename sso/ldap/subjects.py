"""What identifies a person for good: a GUID in Active Directory, text elsewhere."""

from contextlib import suppress
from uuid import UUID

from sso.ldap.messages import Entry


def of(attribute: str, entry: Entry) -> str:
    """The subject of an entry; empty if it has none, or one that cannot be kept."""
    value = next(iter(entry.values(attribute)), b"")
    if attribute.lower() == "objectguid":
        return str(UUID(bytes_le=value)) if len(value) == 16 else ""
    with suppress(UnicodeDecodeError):
        text = value.decode()
        return text if len(value) <= 255 and text.isprintable() else ""
    return ""


def stored(attribute: str, subject: str) -> bytes:
    """The subject as the directory keeps it."""
    return UUID(subject).bytes_le if attribute.lower() == "objectguid" else subject.encode()
