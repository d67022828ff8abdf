"""Limits against guessing and flooding: growing pauses, and budgets for what costs others.

Guessing: `attempt = limiting.enter(limiting.SIGN_IN, email)`, then `attempt.failed()` or
`attempt.passed()`. Only failures count. The first few are free; then each further one doubles the
pause before the next try, up to a longest one: nobody is locked out for good. They are counted for
an account from one network, for an account from everywhere, and for a network whatever the
account. A browser that the account has signed in from before has a count of its own instead, so
that strangers never shut its person out.

Flooding: `limiting.spend(limiting.PASSWORD_RESET, email)` counts every request. How many mails one
address gets is counted, in silence, where they are owed (`store.mails`).

Both raise `TooManyAttempts` (429 with Retry-After) before anything depends on whether the account
exists. IPv6 counts by /64, and with larger budgets by /56 and /48: one customer may have these.
"""

from dataclasses import dataclass, replace
from typing import cast

from flask import Flask, current_app, request
from flask_babel import gettext
from werkzeug.exceptions import TooManyRequests

from sso import audit, clock
from sso.audit.events import limited
from sso.ratelimit import device_cookie, networks
from sso.ratelimit.storage import LimitStorage

HOUR, DAY, _EXTENSION = 3600, 24 * 3600, "sso.limits"


class TooManyAttempts(TooManyRequests):
    """Try again after `seconds`; `description` says so to programs, `words` to people."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"Too many attempts; wait {seconds} seconds.", retry_after=seconds)
        self.seconds = seconds


@dataclass(frozen=True)
class Pauses:
    """So many failures are free; then pauses double up to the longest. All in seconds."""

    free: int
    longest: int
    forget: int = DAY

    def after(self, failures: int) -> int:
        """The pause before the next try; 0 while failures are free."""
        if failures < self.free:
            return 0
        return min(self.longest, 1 << min(failures - self.free + 1, 20))


@dataclass(frozen=True)
class Guessing:
    """What is guessed at, and the pauses for it; `None` where it isn't counted."""

    name: str
    pair: Pauses
    address: Pauses
    account: Pauses | None = None
    device_cookie: Pauses | None = None


@dataclass(frozen=True)
class Flooding:
    """What costs others, and how often it may happen within an hour."""

    name: str
    account: int | None
    address: int


# An office of a thousand people behind one address fails now and then.
_OFFICE = Pauses(free=200, longest=30, forget=HOUR)

# How many times what a /64 may, the wider networks around it may together (see `networks.WIDER`):
# a /56 is one household or branch as a rule, a /48 a company or a campus of many branches.
WIDER_BUDGETS = {56: 2, 48: 5}

SIGN_IN = Guessing(
    "sign_in",
    pair=Pauses(free=5, longest=900),
    account=Pauses(free=30, longest=300),
    address=_OFFICE,
    device_cookie=Pauses(free=20, longest=900),
)
# Six digits: from everywhere together about a hundred tries a day.
SECOND_FACTOR = Guessing(
    "second_factor",
    pair=Pauses(free=5, longest=900),
    account=Pauses(free=10, longest=900),
    address=_OFFICE,
    device_cookie=Pauses(free=10, longest=900),
)
# Somebody at a browser that was left signed in, who looks for the password.
PASSWORD_CHECK = Guessing("password_check", Pauses(5, 900), _OFFICE, Pauses(10, 900))
# Eight digits; each session that a stolen password begins has a code of its own.
EMAILED_CODE = Guessing("emailed_code", Pauses(5, 900), _OFFICE, Pauses(10, 900))
# Nothing to guess there, but each failure is a row of the audit trail.
PASSKEY = Guessing("passkey", pair=_OFFICE, address=_OFFICE)
CLIENT_AUTHENTICATION = Guessing(
    "client_authentication",
    pair=Pauses(free=20, longest=60, forget=HOUR),
    address=Pauses(free=300, longest=60, forget=HOUR),
)

PASSWORD_RESET = Flooding("password_reset", account=None, address=100)
VERIFICATION = Flooding("verification", account=None, address=100)
SIGN_UP = Flooding("sign_up", account=None, address=100)


class Attempt:
    """One try that was let in; tell how it ended before anybody learns it.

    Both raise `TooManyAttempts` if tries that ran beside this one have used up what is free: many
    at once must not learn more than one after the other.
    """

    def __init__(self, doors: "list[_Door]", free: "list[_Door]") -> None:
        self._doors = doors
        self._free = free  # where it found no pause
        # The account, if this browser is one that it has signed in from before: what
        # `passwords.verify` keeps places for.
        self.known_account = next((door.account for door in doors if door.account), None)

    def failed(self) -> None:
        """Count it, at the narrowest first: who is late there uses up no other."""
        for door in self._doors:
            before = _storage().increase(door.failures, door.pauses.forget) - 1
            if door in self._free and (seconds := door.pauses.after(before)):
                raise TooManyAttempts(seconds)

    def passed(self) -> None:
        """Forget the failures from here; those of others go on counting against others."""
        if any(door.pauses.after(_storage().read(door.failures)) for door in self._free):
            self.failed()  # as if it were wrong: neither this pause nor the next may tell
        for door in self._doors:
            if door.is_own:
                _storage().forget(door.failures)
                _storage().forget(door.pause)


@dataclass(frozen=True)
class _Door:
    """One count that an attempt has to pass."""

    key: str
    pauses: Pauses
    is_own: bool  # of this account from here
    account: str | None = None  # that this browser is known by

    @property
    def failures(self) -> str:
        return f"failures/{self.key}"

    @property
    def pause(self) -> str:
        return f"pause/{self.key}"


def init_app(app: Flask, redis_url: str | None) -> None:
    """Count in Redis if a URL is given, else in this process."""
    app.extensions[_EXTENSION] = LimitStorage(redis_url)


def enter(rule: Guessing, account: str) -> Attempt:
    """Let one try in. Raises `TooManyAttempts` while there is a pause."""
    attempt, seconds = ask(rule, account)
    if seconds:
        raise TooManyAttempts(seconds)
    return attempt


def ask(rule: Guessing, account: str) -> tuple[Attempt, int]:
    """As `enter`, but tells the seconds to wait; 0 lets the try in."""
    doors, free = _doors(rule, account), []
    for door in doors:
        if not (pause := door.pauses.after(_storage().read(door.failures))):
            free.append(door)
        elif seconds := _wait(rule, door, pause):
            return Attempt(doors, free), seconds
    return Attempt(doors, free), 0


def spend(rule: Flooding, account: str) -> None:
    """Count one request. Raises `TooManyAttempts` when an hour's budget is used up."""
    budgets = [(f"{rule.name}/address/{networks.of(request.remote_addr)}", rule.address)]
    for length, network in networks.around(request.remote_addr):
        budgets.append((f"{rule.name}/network/{network}", rule.address * WIDER_BUDGETS[length]))
    if rule.account is not None:
        budgets.append((f"{rule.name}/account/{device_cookie.mark(account)}", rule.account))
    for key, budget in budgets:
        count = _storage().increase(f"spent/{key}", HOUR)
        if count == budget + 1:
            audit.event(limited(rule.name), count="of " + key.split("/")[1])
        if count > budget:
            raise TooManyAttempts(_seconds_until_end(f"spent/{key}", HOUR))


def words(seconds: int) -> str:
    """When to try again, in the language of the page."""
    if seconds < 90:
        text = gettext(
            "Too many attempts. Please wait %(seconds)s seconds, then try again.", seconds=seconds
        )
    else:
        minutes = -(-seconds // 60)
        text = gettext(
            "Too many attempts. Please wait %(minutes)s minutes, then try again.", minutes=minutes
        )
    return str(text)


def _doors(rule: Guessing, account: str) -> list[_Door]:
    """The counts for this try, the narrowest first: who is stopped there uses up no other."""
    mark, here = device_cookie.mark(account), networks.of(request.remote_addr)
    if rule.device_cookie and (browser := device_cookie.id_for(account, rule is SIGN_IN)):
        return [_Door(f"{rule.name}/known/{mark}/{browser}", rule.device_cookie, True, mark)]
    doors = [
        _Door(f"{rule.name}/pair/{mark}/{here}", rule.pair, True),
        _Door(f"{rule.name}/address/{here}", rule.address, False),
    ]
    for length, network in networks.around(request.remote_addr):
        wider = replace(rule.address, free=rule.address.free * WIDER_BUDGETS[length])
        doors.append(_Door(f"{rule.name}/network/{network}", wider, False))
    if rule.account:
        doors.append(_Door(f"{rule.name}/account/{mark}", rule.account, False))
    return doors


def _wait(rule: Guessing, door: _Door, pause: int) -> int:
    """Seconds to wait at a door with a pause: one try at a time gets through."""
    tries = _storage().increase(door.pause, pause)
    if tries == 1:
        return 0
    if tries == 2:  # told once a pause, so that a flood does not fill the trail
        audit.event(limited(rule.name), count="of " + door.key.split("/")[1])
    return _seconds_until_end(door.pause, door.pauses.longest)


def _seconds_until_end(key: str, most: int) -> int:
    left = _storage().ends_at(key) - clock.now().timestamp()
    return max(1, min(most, int(left) + 1))


def _storage() -> LimitStorage:
    return cast(LimitStorage, current_app.extensions[_EXTENSION])
