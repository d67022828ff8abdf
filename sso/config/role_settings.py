"""Settings of the operator's roles in administration, and of what limits them."""

from collections.abc import Callable

from sso.config.tables import Reading, checked_group
from sso.flow import permissions


def checked(text: str) -> str:
    """Check groups with permissions, such as `auditors=audit people-read`."""
    for group in permissions.custom_roles(text):
        checked_group(group)
    return text


def checked_limits(example: str) -> Callable[[str], str]:
    """Check entries such as the example; `load_settings` compares them with the roles."""

    def read(text: str) -> str:
        for entry in text.split(","):
            if not all(entry.partition("=")):
                raise ValueError(f"give each role with what it is limited to, such as: {example}")
            checked_group(entry.strip())
        return text

    return read


_LIMITS = {
    "SSO_ADMIN_ROLE_GROUPS": permissions.role_limits,
    "SSO_ADMIN_ROLE_APPLICATIONS": permissions.role_applications,
}


def errors_together(reading: Reading) -> list[str]:
    """Return what is wrong with the limits of roles, which are read together with the roles."""
    roles, errors = reading.values["SSO_ADMIN_ROLES"], []
    if "SSO_ADMIN_ROLES" in dict(reading.located):
        return []
    for name, read in _LIMITS.items():
        try:
            if limits := reading.values[name]:
                read(limits, roles or "")
        except ValueError as error:
            errors.append(f"{name}: {error}")
    return errors
