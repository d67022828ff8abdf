"""Secrets, passwords and keys: random values, digests, encryption at rest, signing keys.

It uses neither Flask's requests nor the database. All cryptography is from `cryptography`,
`joserfc`, `argon2-cffi`, `bcrypt` and Python's `hashlib`.
"""
