"""What the schedulers race over: the sizes of a plain backlog, and a row for each rule that is measured by itself."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from e2e.bench import workload
from e2e.bench.race import disks, preempting, rule_pods
from e2e.bench.race.placed import Placed
from e2e.bench.workload import CARDS_PER_NODE, Json, Size
from e2e.control_plane.admin import Admin

Made: TypeAlias = Iterator[tuple[str, Iterator[Json]]]
"""Paths, and the objects that are created there, in this order."""


@dataclass(frozen=True, slots=True)
class Goals:
    """What ours ÷ kube-scheduler has to reach: pods per second at least, CPU per pod at most; None: no goal.

    all_cpu_at_most: of scheduler, API server and etcd together.
    """

    rate_at_least: float
    cpu_at_most: float | None = None
    all_cpu_at_most: float | None = None


class Counted(NamedTuple):
    """How many there were. wrong: that makes the run worthless."""

    label: str
    number: int
    wrong: bool


@dataclass(frozen=True, slots=True)
class Check:
    """What is counted once the pods are placed. must_be_none: it is a rule that no scheduler may break."""

    label: str
    of: Callable[[Placed], int]
    must_be_none: bool = True

    def counted(self, placed: Placed) -> Counted:
        """What there is of it."""
        number = self.of(placed)
        return Counted(self.label, number, wrong=self.must_be_none and number > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One table.

    before: what is there before the backlog. checks: of the row's own rule. late: the backlog comes when the scheduler
    has bound its first pod, else it waits for the scheduler. beside: runs while the race does. stalled_after_s: the
    race is over when no pod has got a node, or an event, for so long.
    """

    size: Size
    about: str = ""
    pods: Callable[[Size], Iterator[Json]] = workload.pods
    before: Callable[[Size], Made] = lambda _: iter(())
    checks: tuple[Check, ...] = ()
    goals: Goals | None = None
    late: bool = False
    beside: Callable[[Admin], Coroutine[None, None, None]] | None = None
    stalled_after_s: float = 20.0

    @property
    def title(self) -> str:
        """In one line."""
        size = self.size
        templates = "one template" if size.templates == 1 else f"{size.templates} templates"
        text = f"{size.nodes:,} nodes x {CARDS_PER_NODE} cards, {size.pods:,} pods of {templates}"
        return f"{text}: {self.about}" if self.about else text


def _plain(nodes: int, templates: int, rate_at_least: float) -> Row:
    all_cpu_at_most = 0.4 if nodes == 1000 else None  # noqa: PLR2004 - the size that it is asked for
    goals = Goals(
        rate_at_least=rate_at_least,
        cpu_at_most=0.18 if templates == 1 else 0.35,
        all_cpu_at_most=all_cpu_at_most,
    )
    return Row(size=Size(nodes=nodes, pods=5000, templates=templates), goals=goals)


_TWICE: Final = Goals(rate_at_least=2.0)
_OF_RULES: Final = Size(nodes=5000, pods=3000, templates=10)

ROWS: Final[dict[str, Row]] = {
    "1000-5000-1": _plain(nodes=1000, templates=1, rate_at_least=2.5),
    "1000-5000-50": _plain(nodes=1000, templates=50, rate_at_least=2.5),
    "5000-5000-1": _plain(nodes=5000, templates=1, rate_at_least=3.5),
    "spread": Row(
        size=_OF_RULES,
        about="hard topology spread over zones",
        pods=rule_pods.spread,
        checks=(Check("templates with a skew above maxSkew", rule_pods.skewed),),
        goals=_TWICE,
    ),
    "anti-affinity": Row(
        size=_OF_RULES,
        about="required anti-affinity by hostname",
        pods=rule_pods.apart,
        checks=(Check("pods on a node with a replica of their own", rule_pods.together),),
        goals=_TWICE,
    ),
    "preferred": Row(
        size=_OF_RULES,
        about="preferred affinity",
        pods=rule_pods.preferring,
        checks=(Check("pods outside of the zone that they prefer", rule_pods.elsewhere, must_be_none=False),),
        goals=_TWICE,
    ),
    "preemption": Row(
        size=Size(nodes=5000, pods=500, templates=1),
        about="preemption",
        pods=preempting.preemptors,
        before=preempting.before,
        checks=(Check("pods evicted beyond need", preempting.evicted_beyond_need, must_be_none=False),),
        goals=_TWICE,
        late=True,
        beside=preempting.end_terminating,
        # kube-scheduler tries each pod once before it comes back to the first whose victim is gone.
        stalled_after_s=120.0,
    ),
    "claims": Row(
        size=_OF_RULES,
        about="bound claims",
        pods=disks.pods,
        before=disks.before,
        checks=(
            Check("pods out of reach of their disk", disks.out_of_reach),
            Check("nodes with more disks than they can attach", disks.nodes_with_too_many),
        ),
        goals=_TWICE,
    ),
}
"""By the key of the table's section."""
