"""What an import did, or would do: counts, reasons and a few examples of each."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sso.cli.output import print_line
from sso.crypto import foreign_hashes
from sso.services.importing import Fate, Outcome

_MOST_REASONS, _MOST_EXAMPLES, _SHOWN = 50, 100, 5
_OTHER = "other reasons"


@dataclass
class Reasons:
    """How often each reason was given, and to whom first."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def add(self, reason: str, outcome: Outcome) -> None:
        if reason not in self.counts and len(self.counts) >= _MOST_REASONS:
            reason = _OTHER
        self.counts[reason] += 1
        examples, person = self.examples.setdefault(reason, []), outcome.person
        if len(examples) < _MOST_EXAMPLES:
            examples.append({"where": person.where, "email": person.email, "detail": person.detail})

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"reason": reason, "count": count, "examples": self.examples[reason]}
            for reason, count in self.counts.most_common()
        ]

    def lines(self) -> Iterator[str]:
        for reason, count in self.counts.most_common():
            yield f"  {count:,}  {reason}"
            found = self.examples[reason]
            for one in found[:_SHOWN]:
                yield f"      {' · '.join(filter(None, one.values()))}"
            if count > _SHOWN:
                yield "      …"


@dataclass
class Report:
    """Of bounded size, however many people there are."""

    fates: Counter[Fate] = field(default_factory=Counter)
    reasons: dict[Fate, Reasons] = field(
        default_factory=lambda: {Fate.EXISTS: Reasons(), Fate.SKIPPED: Reasons()}
    )
    left_out: Reasons = field(default_factory=Reasons)
    without_password: int = 0
    too_slow: int = 0
    found: set[str] = field(default_factory=set)  # methods of their hashes
    disabled: int = 0
    unverified: int = 0
    methods: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for one in outcomes:
            self.fates[one.fate] += 1
            if one.fate != Fate.IMPORTED:
                self.reasons[one.fate].add(one.reason, one)
                continue
            for what in one.left_out:
                self.left_out.add(what, one)
            person = one.person
            self.without_password += person.password_hash is None
            self.disabled += person.disabled
            self.unverified += not person.email_verified
            self.too_slow += one.is_too_slow
            self.found |= {one.method} if one.method else set()
            if method := foreign_hashes.method_of(person.password_hash):
                self._count(self.methods, method[1:])
            for name in person.groups:
                self._count(self.groups, name)

    def _count(self, counter: Counter[str], name: str) -> None:
        counter[name if name in counter or len(counter) < _MOST_REASONS else _OTHER] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            **{fate: self.fates[fate] for fate in Fate},
            "without_password": self.without_password,
            "too_slow": self.too_slow,
            "disabled": self.disabled,
            "email_not_verified": self.unverified,
            "hashes": dict(self.methods.most_common()),
            "groups": dict(self.groups.most_common()),
            "left_out": self.left_out.as_json(),
            "reasons": {fate: found.as_json() for fate, found in self.reasons.items()},
        }

    def show(self, is_plan: bool) -> None:
        would = "would be " if is_plan else ""
        print_line(f"{self.fates[Fate.IMPORTED]:,} {would}imported")
        for words, count in (
            ("without a password", self.without_password),
            ("of these because the hash is too slow; see below", self.too_slow),
            ("disabled", self.disabled),
            ("with an email address that is not verified", self.unverified),
        ):
            if count:
                print_line(f"  {count:,}  {words}")
        for title, counter in (("password hashes", self.methods), ("groups", self.groups)):
            if counter:
                found = ", ".join(f"{name} ({n:,})" for name, n in counter.most_common())
                print_line(f"  {title}: {found}")
        for title, reasons in (
            (f"{self.fates[Fate.EXISTS]:,} are there already, and stay as they are",
             self.reasons[Fate.EXISTS]),
            (f"{self.fates[Fate.SKIPPED]:,} {would}skipped", self.reasons[Fate.SKIPPED]),
            (f"{self.left_out.counts.total():,} things {would}left out", self.left_out),
        ):  # fmt: skip
            if reasons.counts:
                print_line(title)
                for line in reasons.lines():
                    print_line(line)
