"""Decides which password hashes of other systems are accepted.

Every wrong password costs as much as a check with each method of the imported hashes. So the number
of methods is limited, and so is their total cost, measured on this machine.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress

from sso.crypto import foreign_hashes, passwords
from sso.services.checks import RegistrationError
from sso.store import imported_hashes

MOST_METHODS = 64  # all sign-ins read them; old Django sites have about 20
MOST_SECONDS = 1.0  # of CPU time for each wrong password
TOO_MANY = (
    f"users already have hashes by argon2 or scrypt with {foreign_hashes.MOST_MEMORY_HARD} other "
    "sets of parameters; each makes every wrong password take longer"
)


class TooSlow(RegistrationError):
    """With this hash, every wrong password would take too long."""

    def __init__(self, method: str) -> None:
        super().__init__([
            f"the password hash {method[1:]} is too slow: every wrong password of anybody would "
            f"take more than {MOST_SECONDS:g} s of processor time (see --slow-passwords)"
        ])  # fmt: skip


class Methods:
    """The methods of hashes that were imported or are being imported.

    `any_cost`: the operator accepts that wrong passwords take long.
    """

    def __init__(self, methods: Iterable[str], *, any_cost: bool = False) -> None:
        self._all, self._any_cost = set(methods), any_cost
        self._too_slow: set[str] = set()

    def accept(self, text: str) -> tuple[str | None, str | None]:
        """Return the hash to store for one of another system, and its method; see `admit`.

        The hash is `None` if the user has no password. Raises `RegistrationError` for a hash that
        cannot be checked here.
        """
        try:
            stored = foreign_hashes.from_text(text)
        except foreign_hashes.Refused as error:
            raise RegistrationError([str(error)]) from None
        return stored, self.admit(foreign_hashes.method_of(stored))

    def admit(self, method: str | None) -> str | None:
        """Count a method and return it, or `None` if it is the one that this server uses.

        Raises `TooSlow`, and `RegistrationError` if there are too many methods.
        """
        if method in (None, passwords.own_method()):
            return None
        if method in self._all:
            return method
        if method in self._too_slow:
            raise TooSlow(method)
        hard = sum(map(foreign_hashes.is_memory_hard, (*self._all, method)))
        if foreign_hashes.is_memory_hard(method) and hard > foreign_hashes.MOST_MEMORY_HARD:
            raise RegistrationError([TOO_MANY])
        if len(self._all) >= MOST_METHODS:
            raise RegistrationError([f"users already have hashes of {MOST_METHODS} other costs"])
        if not self._any_cost and self._is_too_slow(method):
            self._too_slow.add(method)
            raise TooSlow(method)
        self._all.add(method)
        return method

    def refuse_slowest(self, methods: Collection[str]) -> None:
        """Refuse the slowest methods of a whole file, whatever their order in it."""
        trial = Methods(self._all, any_cost=self._any_cost)
        for method in sorted(methods, key=lambda one: (foreign_hashes.seconds([one]), one)):
            with suppress(RegistrationError):
                trial.admit(method)
        self._too_slow |= trial._too_slow

    def add(self, methods: Iterable[str]) -> None:
        """Count methods that were already admitted."""
        self._all.update(methods)

    def _is_too_slow(self, method: str) -> bool:
        before, after = foreign_hashes.seconds(self._all), foreign_hashes.seconds(
            [*self._all, method]
        )  # fmt: skip
        return after > before and after > MOST_SECONDS


def accept(text: str) -> str | None:
    """Return the hash to store for one of another system; see `Methods.accept`."""
    stored, method = Methods(imported_hashes.methods()).accept(text)
    if method:
        imported_hashes.note([method])
    return stored
