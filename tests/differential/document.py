"""The counts in docs/evidence/kube-scheduler.md."""

from tests.differential import wire
from tests.differential.comparison import on_purpose
from tests.differential.table import GROUPS

_HEAD = "| group | scenarios | probes | refused by the API server | fit some nodes | may preempt | differ on purpose |"


def differences_markdown() -> str:
    """One row per group, and the sums."""
    rows, sums, who = [], [0] * 6, set[str]()
    for name in GROUPS:
        oracle, scenarios = wire.read(name)
        who.add(oracle.kubernetes)
        probes = [probe for scenario in scenarios for probe in scenario.probes]
        counts = [
            len(scenarios),
            len(probes),
            sum(bool(probe.answer.invalid) for probe in probes),
            sum(bool(probe.answer.feasible and probe.answer.rejected) for probe in probes),
            sum(bool(probe.answer.preemption and probe.answer.preemption.candidates) for probe in probes),
            sum(bool(on_purpose(scenario, probe)) for scenario in scenarios for probe in scenario.probes),
        ]
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        rows.append(_row(f"`{name}`", counts))
    rows.append(_row("**all**", sums))
    table = "\n".join([_HEAD, "|---|---:|---:|---:|---:|---:|---:|", *rows])
    return f"Recorded from kube-scheduler {', '.join(sorted(who))}.\n\n{table}\n"


def _row(name: str, counts: list[int]) -> str:
    return f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |"
