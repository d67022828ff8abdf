"""Who administers in the browser: administrators, and a helpdesk that may do less."""

from collections.abc import Collection

from sso import context

ADMIN, HELPDESK = "admin", "helpdesk"


def role_of(groups: Collection[str]) -> str | None:
    """What members of these groups may be in the administration."""
    settings = context.settings()
    if settings.admin_group in groups:
        return ADMIN
    return HELPDESK if settings.helpdesk_group in groups else None
