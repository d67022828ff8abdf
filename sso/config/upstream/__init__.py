"""Upstream identity providers: the TOML file in `SSO_UPSTREAM_FILE`."""
