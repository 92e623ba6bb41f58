"""The counts in docs/differences.md."""

from tests.differential import wire
from tests.differential.comparison import on_purpose
from tests.differential.table import GROUPS, NOT_BUILT

_HEAD = "| group | scenarios | probes | refused by the API server | fit some nodes | differ on purpose | compared |"


def differences_markdown() -> str:
    """One row per group, and the sums."""
    rows, sums, who = [], [0] * 5, set[str]()
    for name, group in GROUPS.items():
        oracle, scenarios = wire.read(name)
        who.add(oracle.kubernetes)
        probes = [probe for scenario in scenarios for probe in scenario.probes]
        counts = [
            len(scenarios),
            len(probes),
            sum(bool(probe.answer.invalid) for probe in probes),
            sum(bool(probe.answer.feasible and probe.answer.rejected) for probe in probes),
            sum(bool(on_purpose(probe)) for probe in probes),
        ]
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        rows.append(_row(f"`{name}`", counts, "yes" if group.compared else f"recorded; missing: {group.missing}"))
    rows.append(_row("**all**", sums, ""))
    table = "\n".join([_HEAD, "|---|---:|---:|---:|---:|---:|---|", *rows])
    return f"Recorded from kube-scheduler {', '.join(sorted(who))}.\n\n{table}\n\n{_not_built()}"


def _row(name: str, counts: list[int], compared: str) -> str:
    return f"| {name} | {' | '.join(f'{count:,}' for count in counts)} | {compared} |"


def _not_built() -> str:
    if not NOT_BUILT:
        return "Every plugin of kube-scheduler that scores or preempts is compared.\n"
    names = ", ".join(sorted(NOT_BUILT))
    return (
        f"Of these kube-scheduler decides something that we do not yet, in the groups that are compared too: {names}.\n"
    )
