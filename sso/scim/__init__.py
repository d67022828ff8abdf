"""SCIM 2.0 (RFC 7643, RFC 7644): users and groups for provisioning clients.

The libraries scim2-models and scim2-server do the protocol: schemas, PATCH, filters, ETags, errors.
They take 30 MB, so nothing here is imported before the first request (see `endpoints.scim`).
"""
