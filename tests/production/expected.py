"""What clients saw: each thread is a person and an application that write down every answer."""

import json
import random
import time
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import requests

from tests.production.people import Person, Unfinished


@dataclass
class Family:
    """One code and all that it gave, as far as the application knows."""

    code: str
    answered: int = 0  # exchanges of the code answered 200
    tokens: list[dict[str, Any]] = field(default_factory=list)  # every token response, in order
    refreshed: list[str] = field(default_factory=list)  # refresh tokens whose use was answered 200
    successors: dict[str, set[str]] = field(default_factory=dict)
    revoked: bool = False  # a revocation was answered 200
    doubtful: bool = False  # a revocation or a reuse may have ended it without an answer

    @property
    def alive(self) -> bool:
        return bool(self.tokens) and not self.revoked and not self.doubtful


@dataclass
class Expected:
    """What one thread saw."""

    families: list[Family] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    unavailable: list[float] = field(default_factory=list)  # when the answer was 503

    def merge(self, other: "Expected") -> None:
        self.families += other.families
        self.seen += other.seen
        self.faults += other.faults
        self.latencies += other.latencies
        self.unavailable += other.unavailable


def jti_of(access_token: str) -> str:
    body = access_token.split(".")[1]
    claims = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return str(claims["jti"])


class Customer:
    """Acts until told to stop. A broken connection and a 503 are tried again, nothing else is."""

    def __init__(self, person: Person, addresses: list[str], stop: Event, seed: int) -> None:
        self.person, self.addresses, self.stop = person, addresses, stop
        self.random = random.Random(seed)  # whom it happens to reach, not a secret
        self.expected = Expected()
        self.double = ThreadPoolExecutor(2)

    def run(self) -> Expected:
        while not self.stop.is_set():
            if self.random.random() < 0.05:
                self.person.browser = requests.Session()
            code = self._code()
            if code is not None:
                self._family(Family(code))
        self.double.shutdown()
        return self.expected

    def _somewhere(self) -> None:
        self.person.base_url = self.random.choice(self.addresses)

    def _code(self) -> str | None:
        self._somewhere()
        try:
            code = self.person.authorize()
        except Unfinished as unfinished:
            self._note("authorize", unfinished.answer)
            if unfinished.answer.status_code != 503:
                self._fault("authorize", unfinished.answer)
        except requests.RequestException:
            self.expected.seen["authorize broken"] += 1
            self.stop.wait(0.05)
        else:
            self.expected.seen["authorize ok"] += 1
            return code
        return None

    def _family(self, family: Family) -> None:
        self.expected.families.append(family)
        self._exchange(family)
        for _ in range(self.random.randint(0, 3)):
            if not family.alive or self.stop.is_set():
                return
            self._refresh(family)
            self._userinfo(family)
        if family.alive and self.random.random() < 0.2:
            self._revoke(family)

    def _exchange(self, family: Family) -> None:
        began = time.monotonic()
        answers, doubt = self._ask(
            "exchange", lambda: self.person.exchange(family.code), twice=self.random.random() < 0.2
        )
        doubt |= len(answers) > 1 and time.monotonic() - began > 1
        for answer in answers:
            if answer.status_code == 200:
                family.answered += 1
                family.tokens.append(answer.json())
            elif not (doubt or len(answers) > 1):
                self._fault("exchange", answer)
        # A second use, more than a second later, ends what the first one gave.
        family.doubtful |= doubt

    def _refresh(self, family: Family) -> None:
        old = family.tokens[-1]["refresh_token"]
        answers, _ = self._ask(
            "refresh", lambda: self.person.refresh(old), twice=self.random.random() < 0.3
        )
        for answer in answers:
            if answer.status_code == 200:
                family.tokens.append(answer.json())
                family.refreshed.append(old)
                family.successors.setdefault(old, set()).add(answer.json()["refresh_token"])
            else:
                self._fault("refresh", answer)

    def _userinfo(self, family: Family) -> None:
        token = self.random.choice(family.tokens)["access_token"]
        answers, _ = self._ask("userinfo", lambda: self.person.userinfo(token))
        for answer in answers:
            if answer.status_code != 200:
                self._fault("userinfo", answer)

    def _revoke(self, family: Family) -> None:
        token = family.tokens[-1]["refresh_token"]
        answers, doubt = self._ask(
            "revoke", lambda: self.person.post("/oauth2/revoke", token=token)
        )
        family.revoked = any(answer.status_code == 200 for answer in answers)
        family.doubtful |= doubt and not family.revoked

    def _ask(
        self, what: str, ask: Callable[[], requests.Response], twice: bool = False
    ) -> tuple[list[requests.Response], bool]:
        """Answers other than 503, and whether one got lost that may have been a success."""
        doubt = False
        for _ in range(200):
            self._somewhere()
            if twice:
                asked = [self.double.submit(self._try, what, ask) for _ in range(2)]
                tried = [one.result() for one in asked]
            else:
                tried = [self._try(what, ask)]
            answers = [one for one in tried if one is not None and one.status_code != 503]
            doubt |= len(answers) < len(tried)
            if answers:
                return answers, doubt
            if self.stop.wait(0.05):
                break
        return [], True

    def _try(self, what: str, ask: Callable[[], requests.Response]) -> requests.Response | None:
        began = time.monotonic()
        try:
            answer = ask()
        except requests.RequestException:
            self.expected.seen[f"{what} broken"] += 1
            return None
        self.expected.latencies.append((began, time.monotonic() - began))
        self._note(what, answer)
        return answer

    def _note(self, what: str, answer: requests.Response) -> None:
        self.expected.seen[f"{what} {answer.status_code}"] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self._fault(what, answer)
        if answer.status_code == 503:
            self.expected.unavailable.append(time.monotonic())
            if "Retry-After" not in answer.headers:
                self._fault(f"{what} without Retry-After", answer)

    def _fault(self, what: str, answer: requests.Response) -> None:
        self.expected.faults.append(f"{what}: {answer.status_code} {answer.text[:200]}")
