"""A limit of wrong passwords that are sent on to a directory.

Directories lock an account after a few of them, so that strangers could lock it from here. From
browsers that the account is not known by, three failures are passed on, and then one attempt in
half an hour.
"""

from dataclasses import dataclass

from sso.ratelimit.limiting import HOUR, Guessing, Pauses


@dataclass(frozen=True)
class _Steady(Pauses):
    """Pauses that are long from the first on."""

    def after(self, failures: int) -> int:
        return 0 if failures < self.free else self.longest


_FEW = _Steady(free=2, longest=1800, forget=2 * HOUR)

DIRECTORY = Guessing(
    "directory", pair=_FEW, account=_FEW, ip_address=Pauses(200, 30, HOUR), device_cookie=_FEW
)
