"""Secrets, passwords and keys: random values, digests, encryption at rest, signing keys.

Knows no Flask and no database. All cryptography is that of `cryptography`, `joserfc` and
`argon2-cffi`.
"""
