"""Password hashes that were made elsewhere: which are accepted."""

from collections.abc import Collection

from sso.crypto import foreign_hashes, hash_formats, passwords
from sso.services.checks import RegistrationError
from sso.store import imported_hashes

MOST_METHODS = 64  # all sign-ins read them; old Django sites have about 20
TOO_MANY = (
    f"users already have hashes by argon2 or scrypt with {foreign_hashes.MOST_MEMORY_HARD} other "
    "sets of parameters; each makes every wrong password take longer"
)


class Methods:
    """The methods of the hashes that were imported so far."""

    def __init__(self, methods: Collection[str], *, any_cost: bool = False) -> None:
        self.all, self._any_cost = set(methods), any_cost

    def accept(self, text: str) -> tuple[str | None, str | None]:
        try:
            stored = hash_formats.from_text(text)
        except foreign_hashes.Refused as error:
            raise RegistrationError([str(error)]) from None
        method = new_method(stored, self.all) if stored else None
        self.add(method)
        return stored, method

    def add(self, method: str | None) -> None:
        if method:
            self.all.add(method)


def accept(text: str) -> str | None:
    """The hash to store for one that was made elsewhere; `None` if it says that there is none.

    Raises `RegistrationError` for one that cannot be checked.
    """
    try:
        stored = hash_formats.from_text(text)
    except foreign_hashes.Refused as error:
        raise RegistrationError([str(error)]) from None
    if stored and (method := new_method(stored, imported_hashes.methods())):
        imported_hashes.note([method])
    return stored


def new_method(stored: str, known: Collection[str]) -> str | None:
    """The method of a hash, unless hashes are made by it here; `known`: those imported so far.

    Raises `RegistrationError` for one too many.
    """
    method = foreign_hashes.method_of(stored)
    if method in (None, passwords.own_method()):
        return None
    if method not in known:
        hard = sum(map(foreign_hashes.is_memory_hard, (*known, method)))
        if foreign_hashes.is_memory_hard(method) and hard > foreign_hashes.MOST_MEMORY_HARD:
            raise RegistrationError([TOO_MANY])
        if len(known) >= MOST_METHODS:
            raise RegistrationError([f"users already have hashes of {MOST_METHODS} other costs"])
    return method
