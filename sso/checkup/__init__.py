"""Checks of this installation, for `flask doctor` and the admin pages."""
