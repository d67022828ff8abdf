"""Second factors: passkeys, authenticator apps, recovery codes, and their proofs.

Nothing here commits, and nothing here knows of pages.
"""
