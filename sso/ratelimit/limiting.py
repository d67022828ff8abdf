"""Limits against guessing and flooding: growing pauses, and budgets of requests.

Guessing: `attempt = limiting.enter(limiting.SIGN_IN, email)`, then `attempt.failed()` or
`attempt.passed()`. Only failures count. The first few are free. Each further failure doubles the
pause before the next attempt, up to a maximum: nobody is locked out for good. Failures are counted
per account and network, per account, and per network. A browser that the account has signed in from
before has a count of its own instead, so that strangers never lock its user out.

Directories lock an account after a few wrong passwords, so that strangers could lock it from here.
From browsers that the account has not signed in from before, a directory gets three failures, and
then one attempt in half an hour.

Flooding: `limiting.spend(limiting.PASSWORD_RESET, email)` counts every request. The mails to one
email address are limited, silently, where they are enqueued (`store.outbox`).

Both raise `TooManyAttempts` (429 with Retry-After) before anything depends on whether the account
exists. IPv6 counts by /64, and with larger budgets by /56 and /48: one customer may have these.
"""

from dataclasses import dataclass, replace

from flask import Flask, current_app, request
from flask_babel import gettext
from werkzeug.exceptions import TooManyRequests

from sso import audit, clock
from sso.audit.events import limited
from sso.i18n import times
from sso.ratelimit import device_cookie, networks
from sso.ratelimit.storage import LimitStorage

HOUR, DAY, _EXTENSION = 3600, 24 * 3600, "sso.limits"


class TooManyAttempts(TooManyRequests):
    """Try again after `seconds`. `description` is for programs, `waiting_time` for people."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"Too many attempts; wait {seconds} seconds.", retry_after=seconds)
        self.seconds = seconds


@dataclass(frozen=True)
class Pauses:
    """`free` failures cause no pause; then pauses double up to `longest`. In seconds."""

    free: int
    longest: int
    forget: int = DAY

    def after(self, failures: int) -> int:
        """Return the pause before the next attempt; 0 while failures are free."""
        if failures < self.free:
            return 0
        return min(self.longest, 1 << min(failures - self.free + 1, 20))


@dataclass(frozen=True)
class Guessing:
    """The pauses after failed guesses of one kind; `None` where failures are not counted."""

    name: str
    pair: Pauses
    ip_address: Pauses
    account: Pauses | None = None
    device_cookie: Pauses | None = None


@dataclass(frozen=True)
class Flooding:
    """The number of requests of one kind that are admitted within an hour."""

    name: str
    account: int | None
    ip_address: int


@dataclass(frozen=True)
class Budget:
    """The number of requests that an authenticated program may send in a period of seconds."""

    name: str
    most: int
    seconds: int


# An office of a thousand people behind one IP address fails now and then.
_OFFICE = Pauses(free=200, longest=30, forget=HOUR)

# The budget of a wider network, as a multiple of a /64's (see `networks.WIDER`). A /56 is usually
# one household or branch, a /48 a company or campus with many branches.
WIDER_BUDGETS = {56: 2, 48: 5}

SIGN_IN = Guessing(
    "sign_in",
    pair=Pauses(free=5, longest=900),
    account=Pauses(free=30, longest=300),
    ip_address=_OFFICE,
    device_cookie=Pauses(free=20, longest=900),
)
# Six digits: about a hundred attempts a day, from everywhere together.
SECOND_FACTOR = Guessing(
    "second_factor",
    pair=Pauses(free=5, longest=900),
    account=Pauses(free=10, longest=900),
    ip_address=_OFFICE,
    device_cookie=Pauses(free=10, longest=900),
)
# Guesses at a browser that was left signed in.
PASSWORD_CHECK = Guessing("password_check", Pauses(5, 900), _OFFICE, Pauses(10, 900))
# Eight digits; each session that a stolen password begins has a code of its own.
EMAILED_CODE = Guessing("emailed_code", Pauses(5, 900), _OFFICE, Pauses(10, 900))
# Eight digits; each browser that asks has a code of its own, with five tries.
SIGN_IN_CODE = Guessing(
    "sign_in_code",
    pair=Pauses(free=10, longest=900),
    account=Pauses(free=30, longest=300),
    ip_address=_OFFICE,
    device_cookie=Pauses(free=20, longest=900),
)
# Nothing to guess, but each failure is a row in the audit trail.
PASSKEY = Guessing("passkey", pair=_OFFICE, ip_address=_OFFICE)
# Of a device, eight letters. A right one proves nothing of its sender, so it resets no count.
# Before the sign-in, all people of a network share one count.
DEVICE_CODE = Guessing("device_code", Pauses(10, 900), _OFFICE, Pauses(20, 900))
DEVICE_CODE_BY_ANYONE = Guessing("device_code_by_anyone", Pauses(30, 300, HOUR), _OFFICE)
CLIENT_AUTHENTICATION = Guessing(
    "client_authentication", pair=Pauses(20, 60, HOUR), ip_address=Pauses(300, 60, HOUR)
)
API_TOKEN = replace(CLIENT_AUTHENTICATION, name="api_token")  # cannot be guessed, either

PASSWORD_RESET = Flooding("password_reset", account=None, ip_address=100)
VERIFICATION = Flooding("verification", account=None, ip_address=100)
# A thousand people behind one IP address sign in in the morning.
SIGN_IN_CODE_REQUEST = Flooding("sign_in_code_request", account=None, ip_address=1000)
SIGN_UP = Flooding("sign_up", account=None, ip_address=100)
TEST_WEBHOOK = Flooding("test_webhook", account=60, ip_address=300)  # by administrators
TEST_SIGN_IN = Flooding("test_sign_in", account=20, ip_address=100)  # by administrators
# People whom the owner of a group adds; those without an account are invited by email.
OWNER_ADDITION = Flooding("owner_addition", account=100, ip_address=500)
# Each takes up to a second of a processor.
PICTURE = Flooding("picture", account=30, ip_address=300)
PUSHED_REQUEST = Flooding("pushed_request", account=100_000, ip_address=200_000)
# Entra ID sends up to 25 short requests a second, all with one token.
API_REQUESTS = Budget("api_requests", most=3000, seconds=60)
# Each is a row until it expires: a hundred a second.
EXCHANGED_TOKENS = Budget("exchanged_tokens", most=360_000, seconds=HOUR)
# Each is a row until it expires. A service that asks for a token before each of its requests, ten a
# second, is within it.
SERVICE_TOKENS = Budget("service_tokens", most=36_000, seconds=HOUR)
# Of documents that no person has allowed yet. Each URL is read at most twice a minute.
CLIENT_DOCUMENT = Flooding("client_document", account=300, ip_address=60)
OPEN_REGISTRATION = Flooding("open_registration", account=2000, ip_address=20)
PUSHED_BY_ANYONE = Flooding("pushed_by_anyone", account=None, ip_address=3000)
# A device asks once for each sign-in.
DEVICE_REQUEST = Flooding("device_request", account=10_000, ip_address=20_000)
DEVICE_REQUEST_BY_ANYONE = Flooding("device_request_by_anyone", account=None, ip_address=1000)


class Attempt:
    """One admitted attempt. Report its outcome before the request is answered.

    Both methods raise `TooManyAttempts` if concurrent attempts have used up the free failures: an
    attacker must not learn more from many attempts at once than from one after the other.
    """

    def __init__(self, counters: "list[_Counter]", free: "list[_Counter]") -> None:
        self._counters = counters
        self._free = free  # those without a pause
        # The account, if it has signed in from this browser before: `passwords.verify` keeps a
        # place for it.
        self.known_account = next(
            (counter.account for counter in counters if counter.account), None
        )

    def failed(self) -> None:
        """Count the failure, narrowest counter first: if it refuses, the others do not count it."""
        for counter in self._counters:
            before = _storage().increase(counter.failures, counter.pauses.forget) - 1
            if counter in self._free and (seconds := counter.pauses.after(before)):
                raise TooManyAttempts(seconds)

    def passed(self, *, forget: bool = True) -> None:
        """Forget the failures from here; those from elsewhere still count."""
        if any(counter.pauses.after(_storage().read(counter.failures)) for counter in self._free):
            self.failed()  # as after a failure: neither this pause nor the next may differ
        for counter in self._counters:
            if counter.is_own and forget:
                _storage().forget(counter.failures)
                _storage().forget(counter.pause)


@dataclass(frozen=True)
class _Counter:
    """One counter that may refuse an attempt."""

    key: str
    pauses: Pauses
    is_own: bool  # of this account and this network or browser
    account: str | None = None  # the account that has signed in from this browser

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
    """Admit one attempt. Raises `TooManyAttempts` during a pause."""
    attempt, seconds = ask(rule, account)
    if seconds:
        raise TooManyAttempts(seconds)
    return attempt


def ask(rule: Guessing, account: str) -> tuple[Attempt, int]:
    """Do as `enter`, but return the seconds to wait; 0 admits the attempt."""
    counters, free = _counters(rule, account), []
    for counter in counters:
        if not (pause := counter.pauses.after(_storage().read(counter.failures))):
            free.append(counter)
        elif seconds := _wait(rule, counter, pause):
            return Attempt(counters, free), seconds
    return Attempt(counters, free), 0


def spend(rule: Flooding, account: str) -> None:
    """Count one request. Raises `TooManyAttempts` when an hour's budget is used up."""
    budgets = [(f"{rule.name}/address/{networks.of(request.remote_addr)}", rule.ip_address)]
    for length, network in networks.around(request.remote_addr):
        budgets.append((f"{rule.name}/network/{network}", rule.ip_address * WIDER_BUDGETS[length]))
    if rule.account is not None:
        budgets.append((f"{rule.name}/account/{device_cookie.mark(account)}", rule.account))
    for key, budget in budgets:
        count = _storage().increase(f"spent/{key}", HOUR)
        if count == budget + 1:
            audit.event(limited(rule.name), count="of " + key.split("/")[1])
        if count > budget:
            raise TooManyAttempts(_seconds_until_end(f"spent/{key}", HOUR))


def spend_own(rule: Budget, program: str, requests: int = 1, *, kind: str = "api_token") -> None:
    """Count requests of an authenticated program by its ID. Raises `TooManyAttempts`.

    `kind`: what the audit trail calls the program.
    """
    key = f"spent/{rule.name}/{program}"
    count = _storage().increase(key, rule.seconds, requests)
    if count - requests <= rule.most < count:
        audit.event(limited(rule.name), **{kind: program})
    if count > rule.most:
        raise TooManyAttempts(_seconds_until_end(key, rule.seconds))


def is_early(name: str, seconds: int) -> bool:
    """Count one request by this name; return whether it comes within so many seconds of another."""
    return _storage().increase(f"early/{name}", seconds) > 1


def waiting_time(seconds: int) -> str:
    """Return the message that says when to try again, in the language of the page."""
    time = times.duration(seconds)
    return str(gettext("Too many attempts. Please wait %(time)s, then try again.", time=time))


def _counters(rule: Guessing, account: str) -> list[_Counter]:
    """Return the counters of this attempt, narrowest first."""
    mark, here = device_cookie.mark(account), networks.of(request.remote_addr)
    if rule.device_cookie and (browser := device_cookie.id_for(account, rule is SIGN_IN)):
        return [_Counter(f"{rule.name}/known/{mark}/{browser}", rule.device_cookie, True, mark)]
    counters = [_Counter(f"{rule.name}/pair/{mark}/{here}", rule.pair, True)]
    counters.append(_Counter(f"{rule.name}/address/{here}", rule.ip_address, False))
    for length, network in networks.around(request.remote_addr):
        wider = replace(rule.ip_address, free=rule.ip_address.free * WIDER_BUDGETS[length])
        counters.append(_Counter(f"{rule.name}/network/{network}", wider, False))
    if rule.account:
        counters.append(_Counter(f"{rule.name}/account/{mark}", rule.account, False))
    return counters


def _wait(rule: Guessing, counter: _Counter, pause: int) -> int:
    """Return the seconds to wait for a counter in its pause, which admits one attempt."""
    tries = _storage().increase(counter.pause, pause)
    if tries == 1:
        return 0
    if tries == 2:  # recorded once per pause, so that a flood does not fill the audit trail
        audit.event(limited(rule.name), count="of " + counter.key.split("/")[1])
    return _seconds_until_end(counter.pause, counter.pauses.longest)


def _seconds_until_end(key: str, most: int) -> int:
    seconds = _storage().ends_at(key) - clock.now().timestamp()
    return max(1, min(most, int(seconds) + 1))


def _storage() -> LimitStorage:
    storage: LimitStorage = current_app.extensions[_EXTENSION]
    return storage


@dataclass(frozen=True)
class _Steady(Pauses):
    """Pauses that all have the full length."""

    def after(self, failures: int) -> int:
        return 0 if failures < self.free else self.longest


_FEW = _Steady(free=2, longest=1800, forget=2 * HOUR)

DIRECTORY = Guessing(
    "directory", pair=_FEW, account=_FEW, ip_address=Pauses(200, 30, HOUR), device_cookie=_FEW
)
