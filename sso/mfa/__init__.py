"""Second factors: passkeys, authenticator apps, recovery codes, and what they prove.

Nothing here commits, and nothing here knows of pages.
"""
