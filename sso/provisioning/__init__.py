"""Calls to applications that keep accounts of their own, by SCIM (RFC 7644 as a client)."""
