"""What the benchmark found, as data and as a table."""

from statistics import mean, median, quantiles, stdev
from typing import Any

from tests.bench.baseline import WITH_BASELINE
from tests.bench.scenarios import AUTHORIZE, BARE, MAIN, SCENARIOS, USERINFO
from tests.bench.transport import Answer

Figures = dict[str, Any]

_TO_BARE = (AUTHORIZE.name, USERINFO.name)


class Measured:
    """The rounds of one scenario under gunicorn."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.rates: list[float] = []
        self.cpu: list[float] = []

    def add(self, answers: list[Answer], wall: float, cpu: float) -> None:
        self.seconds += [answer.seconds for answer in answers]
        self.rates.append(len(answers) / wall)
        self.cpu.append(1000 * cpu / len(answers))

    def figures(self) -> Figures:
        percent = quantiles(self.seconds, n=100)
        return {
            "per_second": round(median(self.rates), 1),
            "p50_ms": round(1000 * percent[49], 2),
            "p95_ms": round(1000 * percent[94], 2),
            "p99_ms": round(1000 * percent[98], 2),
            "cpu_ms": round(mean(self.cpu), 3),
        }

    @property
    def noise(self) -> float:
        """Standard deviation of the rounds' CPU time, as a share of their mean."""
        return stdev(self.cpu) / mean(self.cpu) if len(self.cpu) > 1 else 0.0


def ratios(in_process: dict[str, float]) -> dict[str, float]:
    """What the targets are given in: to the bare route, or to the baseline under the scenario."""
    yardstick = in_process[BARE.name]
    found = {f"{name} / bare route": in_process[name] / yardstick for name in _TO_BARE}
    found |= {
        f"{scenario.name} / its baseline": in_process[scenario.name]
        / in_process[f"baseline of {scenario.name}"]
        for scenario in WITH_BASELINE
    }
    return {name: round(ratio, 2) for name, ratio in found.items()}


def table(found: Figures, every: bool) -> str:
    """What one request costs, in Markdown: of a sign-in and what follows, or of every scenario.

    `--json` has the rest.
    """
    rows = [("endpoint", "CPU ms", "÷ bare route", "per second", "p95 ms", "statements")]
    yardstick = found["gunicorn"][BARE.name]["cpu_ms"] or float("nan")  # too few to measure
    for scenario in SCENARIOS if every else (*SCENARIOS[:MAIN], BARE):
        served = found["gunicorn"][scenario.name]
        statements, _ = found["statements"].get(scenario.name, (0, 0))
        rows.append(
            (
                scenario.name,
                f"{served['cpu_ms']:.2f}",
                f"{served['cpu_ms'] / yardstick:.1f}",
                f"{served['per_second']:.0f}",
                f"{served['p95_ms']:.1f}",
                f"{statements:.0f}",
            )
        )
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"| {name:<{first}} | " + " | ".join(map(str.rjust, figures, others)) + " |"
        for name, *figures in rows
    ]
    lines.insert(1, f"|{'-' * (first + 2)}|" + "|".join(f"{'-' * (n + 1)}:" for n in others) + "|")
    memory = found["memory_mb"]
    lines += [
        "",
        f"{found['database']}, {found['seed_rows']:,} users, {found['workers']} workers on one "
        f"core; {memory['at start']:.0f} MB at start, {memory['after the load']:.0f} MB after the "
        f"load. The bare route's CPU time varied by ±{found['noise']:.0%} between rounds.",
    ]
    return "\n".join(lines)
