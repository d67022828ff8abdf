"""The secret key of an installation that was given none."""

import os
import secrets
from pathlib import Path


def embedded_secret_key(instance: Path) -> str:
    """The secret key in `instance/secret_key`; made once, readable by its owner alone."""
    path = instance / "secret_key"
    if not path.exists():
        # Written whole under another name and linked: of several processes that start at once,
        # one wins and none reads half a key.
        fresh = instance / f".secret_key.{secrets.token_hex(8)}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text().strip()
