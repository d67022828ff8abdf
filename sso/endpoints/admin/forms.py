"""The forms of admin pages. Each carries a CSRF token."""

from sso.endpoints.forms import PageForm


class ConfirmForm(PageForm):
    """One button; what it does is in the URL."""
