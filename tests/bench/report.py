"""What the benchmark found, as data and as a table."""

from statistics import mean, median, quantiles, stdev
from typing import Any

from tests.bench.baseline import WITH_BASELINE
from tests.bench.scenarios import AUTHORIZE, BARE, SCENARIOS, USERINFO
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


def table(found: Figures) -> str:
    """Readable, in Markdown."""
    lines = [
        "| scenario | per second | p50 ms | p95 ms | p99 ms | CPU ms (gunicorn) | ÷ bare "
        "| CPU ms (in process) | statements (commits) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    yardstick = found["gunicorn"][BARE.name]["cpu_ms"] or float("nan")  # too few to measure
    for scenario in SCENARIOS:
        served, inside = found["gunicorn"][scenario.name], found["in_process_cpu_ms"][scenario.name]
        sql, commits = found["statements"].get(scenario.name, (0, 0))
        lines.append(
            f"| {scenario.name} | {served['per_second']:.0f} | {served['p50_ms']:.1f} "
            f"| {served['p95_ms']:.1f} | {served['p99_ms']:.1f} | {served['cpu_ms']:.2f} "
            f"| {served['cpu_ms'] / yardstick:.1f} | {inside:.3f} | {sql:g} ({commits:g}) |"
        )
    lines += ["", "| in process | |", "|---|---|"]
    baselines = {name: v for name, v in found["in_process_cpu_ms"].items() if "baseline" in name}
    parts = {**found["baseline_cpu_ms"], **baselines}
    lines += [f"| {name}, ms | {value:.3f} |" for name, value in parts.items()]
    lines += [f"| {name} | {value:.2f} |" for name, value in found["ratios"].items()]
    lines += [
        "",
        f"{found['database']}, {found['seed_rows']:,} users and ten times as many tokens; "
        f"{found['workers']} workers, with {found['memory_mb']['at start']:.0f} MB of memory at "
        f"start and {found['memory_mb']['after the load']:.0f} MB after the load (PSS); "
        f"noise of the bare route's CPU time over {found['rounds']} rounds of "
        f"{found['requests']}: ±{found['noise']:.0%}.",
    ]
    return "\n".join(lines)
