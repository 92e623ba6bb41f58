"""Which modules are changed, and what of that no comparison with kube-scheduler can see."""

from dataclasses import dataclass
from typing import Final

_COLUMNS: Final = "scheduler.state.columns"


@dataclass(frozen=True, slots=True)
class Subject:
    """A module that is changed. first: the groups that are likely to see it.

    orders: the order of what its functions return is changed, too. tests: files of unit tests that are asked about what
    the comparison does not see, below tests/; not for what a pod's template keeps, which they read once per process.
    """

    module: str
    first: tuple[str, ...]
    orders: bool = False
    tests: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Without its package."""
        return self.module.rpartition(".")[2]


_AFFINITY: Final = ("existing_anti_affinity", "required_affinity", "required_anti_affinity", "preferred_affinity")
_PREEMPTION: Final = ("preemption_again", "preemption_rules", "preemption", "preemption_lowest", "preemption_wide")
_OF_PREEMPTION: Final = (
    "scheduler/plugins/test_who_may_go.py",
    "scheduler/plugins/test_victims_by_amounts.py",
    "scheduler/plugins/test_victims.py",
    "scheduler/test_preemption_searches.py",
    "system/test_preemption.py",
    "system/test_kept_places.py",
    "system/test_removal_of_victims.py",
    "system/test_preemption_openings.py",
)
SUBJECTS: Final = (
    Subject("scheduler.plugins.node_unschedulable", ("unschedulable",)),
    Subject("scheduler.plugins.node_name", ("node_name",)),
    Subject(
        "scheduler.plugins.taint_toleration",
        ("taints", "unschedulable"),
        tests=("scheduler/plugins/test_taint_toleration.py",),
    ),
    Subject(
        "scheduler.plugins.node_affinity",
        ("node_affinity", "node_fields"),
        tests=("scheduler/plugins/test_node_affinity.py",),
    ),
    Subject("scheduler.plugins.node_ports", ("node_ports",), tests=("scheduler/plugins/test_node_ports.py",)),
    Subject(
        "scheduler.plugins.node_resources_fit",
        ("resources", "several_resources", "balance"),
        tests=("scheduler/plugins/test_node_resources_fit.py", "scheduler/plugins/test_resource_allocation.py"),
    ),
    Subject("scheduler.plugins.inter_pod_affinity", _AFFINITY, tests=("scheduler/plugins/test_inter_pod_affinity.py",)),
    Subject(
        "scheduler.plugins.pod_topology_spread",
        ("spread_hard", "spread_soft", "spread_label_keys", "spread_policies"),
        tests=("scheduler/plugins/test_pod_topology_spread.py", "scheduler/plugins/test_spread_histories.py"),
    ),
    Subject(
        "scheduler.plugins.spread_constraints",
        ("spread_hard", "spread_soft", "spread_domains", "spread_policies", "spread_label_keys"),
        tests=("scheduler/plugins/test_pod_topology_spread.py", "scheduler/plugins/test_spread_histories.py"),
    ),
    Subject(
        "scheduler.plugins.volume_restrictions",
        ("volume_restrictions",),
        tests=("scheduler/plugins/test_volume_restrictions.py",),
    ),
    Subject(
        "scheduler.plugins.node_volume_limits",
        ("volume_limits",),
        tests=("scheduler/plugins/test_node_volume_limits.py",),
    ),
    Subject(
        "scheduler.plugins.volume_binding",
        ("volume_bound", "volume_static", "volume_dynamic"),
        tests=("scheduler/plugins/test_volume_binding.py",),
    ),
    Subject("scheduler.plugins.volume_zone", ("volume_zone",), tests=("scheduler/plugins/test_volume_zone.py",)),
    Subject(
        "scheduler.state.volumes.matching",
        ("volume_static", "volume_dynamic"),
        tests=("scheduler/plugins/test_volume_binding.py",),
    ),
    Subject(
        "scheduler.plugins.resource_allocation",
        ("resources", "several_resources", "balance"),
        tests=("scheduler/plugins/test_resource_allocation.py",),
    ),
    Subject(
        "scheduler.plugins.node_resources_balanced_allocation",
        ("balance", "resources"),
        tests=("scheduler/plugins/test_node_resources_balanced_allocation.py",),
    ),
    Subject("scheduler.plugins.image_locality", ("images",), tests=("scheduler/plugins/test_image_locality.py",)),
    Subject("scheduler.plugins.node_declared_features", ("declared_features",)),
    Subject("scheduler.pods.declared_features", ("declared_features",)),
    Subject("scheduler.pods.effective_requests", ("resources", "resized", "balance")),
    Subject(
        f"{_COLUMNS}.node_terms",
        ("node_affinity", "node_fields", "volume_bound"),
        tests=("scheduler/plugins/test_node_affinity.py",),
    ),
    Subject(
        f"{_COLUMNS}.selectors",
        ("node_affinity", "existing_anti_affinity"),
        tests=("scheduler/state/columns/test_selectors.py",),
    ),
    Subject(
        "scheduler.state.facts.existing_terms",
        ("existing_anti_affinity", "preferred_affinity"),
        tests=("scheduler/state/facts/test_existing_terms.py",),
    ),
    Subject(f"{_COLUMNS}.images", ("images",), tests=("scheduler/state/columns/test_images.py",)),
    Subject("scheduler.plugins.victims", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject("scheduler.plugins.victims_by_amounts", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject(
        "scheduler.state.disruption_budgets",
        _PREEMPTION,
        orders=True,
        tests=("scheduler/state/test_disruption_budgets.py", *_OF_PREEMPTION),
    ),
    Subject("scheduler.plugins.default_preemption", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject("scheduler.framework.what_if", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject(
        "scheduler.state.nominations",
        ("nominated", *_PREEMPTION),
        orders=True,
        tests=("scheduler/state/test_nominations.py", *_OF_PREEMPTION),
    ),
)
_ONE_BY_ONE: Final = "classes of pods: the comparison asks about one pod at a time"
_KEPT: Final = "when something is worked out again, and what keeping it costs: scheduler.testkit and its histories"
_CONFIGURED: Final = "the default profile does not configure it"
_ADMITTED: Final = "the API server admits no pod for which it matters"
_FASTER: Final = "another way to the same answer"
_LEAVES: Final = "nothing leaves while pods are asked about: tests/scheduler/testkit and the random histories"
_STEPS: Final = "how much is done in one step, not what comes of it"
_RULES: Final = "what plain amounts say is held against the rules, which say the same at last"
_STRICT: Final = "strict: the lists are as long as each other"
_NODES: Final = "open: no test has more nodes than are compared"
_OPEN: Final = "open: not looked into yet"
_ALONE: Final = (
    "alone = [holder for holder, rank, does in zip(holders, ranks, enough, strict=True) if does and rank == lowest]"
)
_ASKED: Final = "asked = [amount for amount in Amount if amount is not Amount.CARD_UNITS and least[amount] != NOTHING]"
_SHARES: Final = (
    'return tuple(CardShare(card.index, card.uuid if has_uuids else "", request.units_per_card) for card in announced)'
)
_GONE: Final = "return [*forced, *(holder for holder, gone in zip(open_to, best.tolist(), strict=True) if gone)]"
_ROOM: Final = "_left(tables, row, amount) - int(least[amount]) + sum(holder.amounts[place] for holder in holders)"
_NO_CHOICE: Final = (
    "if not forced and (one := _only_one(open_to, (held >= held.sum(axis=0) - room).all(axis=1).tolist())) is not None:"
)
_SHORT: Final = "short = tuple(_reason(amount, gpu_mem) for amount, room in zip(asked, rooms, strict=True) if room < 0)"
_SHORT_OF: Final = (
    "short = [place for place, room in enumerate(rooms) if room < sum(holder.amounts[place] for holder in holders)]"
)
# What no comparison with kube-scheduler can see, and why: a function, one line of it, or a line.
UNSEEN: Final[dict[str, str]] = {
    "tolerates: return False": f"an operator of tolerations behind a feature gate: {_ADMITTED}",
    "HostPorts.book: addresses[port.ip] += sign": _LEAVES,
    "HostPorts._rows_with": _FASTER,
    "_parsed_field": _ADMITTED,
    "Required.over: if (row := only_row(rows)) is not None:": _FASTER,
    "Required.size_bytes": _KEPT,
    "Matcher.over": _KEPT,
    "Matcher.size_bytes": _KEPT,
    "of_label_selector": _ADMITTED,
    "of_text": "selectors that annotations of ours have",
    "_requestable": _CONFIGURED,
    "is_extended": _CONFIGURED,
    "with_pod": _CONFIGURED,
    "most_allocated": _CONFIGURED,
    "NodeResourcesFitArgs.contradicting": _CONFIGURED,
    "NodeResourcesFit._requested": _KEPT,
    "NodeResourcesFit.score: if not weights or np.count_nonzero(allocatable) < allocatable.size:": _FASTER,
    "ExistingTerms.namespaces_changed": _LEAVES,
    "NodeName.signature": _ONE_BY_ONE,
    "_has_users_of_its_own_in_the_hosts_network": "seen by test_node_declared_features.py",
    "VolumeRestrictions.signature": _ONE_BY_ONE,
    "VolumeZone.signature": _ONE_BY_ONE,
    "VolumeBinding.signature": _ONE_BY_ONE,
    "VolumeBinding.moment": _ONE_BY_ONE,
    "VolumeBinding.reserve": "which volume a pod gets is not compared",
    "NodeVolumeLimits.signature": _ONE_BY_ONE,
    "ImageLocality.standing": "when all rows are scored again: every probe is asked once",
    "Images.shared": "which objects nodes share: they are equal",
    'name = claim.kept if count and matched[0] else ""': "which volume a pod gets is not compared",
    "if of_class is None or of_class.known is None or not active.any():": "a claim that waits has a class",
    "self._alive &= ~on | can": "seen by tests/scheduler/plugins/test_volume_binding.py",
    "self.users[key] += sign": _LEAVES,
    "rows[row] += sign": _LEAVES,
    "opened_by": "who waits is asked again: tests/scheduler/plugins/test_spread_histories.py",
    "PodTopologySpread.opened_by": "who waits is asked again: tests/scheduler/plugins/test_spread_histories.py",
    "return (-1, 0, 0, 0, 0)": "no victims: less than any key is all that it has to be",
    "return -pod.priority, pod.started or _LAST, pod.key.namespace, pod.key.name": "by name at last: chance there",
    "lower: if len(found) > MOST_VICTIMS:": _FASTER,
    "agreed: if tables.pods_on(found.row) > PODS_PER_STEP:": _STEPS,
    "by_rules: return None, ()": "open: the node goes between two steps",
    "by_rules: if 0 < len(found.victims) == len(potential) - len(stay):": _FASTER,
    "shares_of: if request is None or chosen.slots is None:": "who asks for no card gets none: both, or neither",
    f"shares_of: {_SHARES}": "open: a node whose cards have no UUIDs",
    "self.version += 1": _KEPT,
    "return 320 + 8 * len(kept.names)": _KEPT,
    f"by_amounts: {_ASKED}": _FASTER,
    f"by_amounts: {_SHORT}": _STRICT,
    "say_all": _FASTER,
    "_left": _RULES,
    "_victims": _RULES,
    f"by_amounts: {_ROOM}": _RULES,
    "kept_place": _OPEN,
    "promising: if amount is not Amount.CARD_UNITS and least[amount] != NOTHING:": _FASTER,
    "promising: if request is not None and least[Amount.CARD_UNITS] != NOTHING:": _CONFIGURED,
    f"_fewest: {_SHORT_OF}": _FASTER,
    "_fewest: if not _FEWEST_OPEN < len(open_to) <= _MOST_OPEN:": _FASTER,
    f"_fewest: {_NO_CHOICE}": _FASTER,
    f"_fewest: {_GONE}": _STRICT,
    f"_only_one: {_ALONE}": _STRICT,
    "_sets: if comb(len(alone), request.cards) <= _MOST_COMPARED:": "no number of cards has so many sets exactly",
    "DefaultPreemption.post_filter: if version != what_if.tables.changes.version:": "open: a node changes in a search",
    "DefaultPreemption.post_filter: if best is None or (waiting and waiting[0][0] < best.key):": _STEPS,
    "DefaultPreemption.post_filter: while waiting and (best is None or waiting[0][0] < best.key):": _FASTER,
    "DefaultPreemption.post_filter: if found is not None and (best is None or found.key < best.key):": _FASTER,
    "looked_at += _PODS_OF_A_NODE + what_if.tables.pods_on(row)": _STEPS,
    "if looked_at > PODS_PER_STEP:": _STEPS,
    "DefaultPreemption._by_amounts: clean, most, looked_at = False, self._compared(what_if), 0": _NODES,
    "DefaultPreemption._by_amounts: clean |= not here[0].violations": _NODES,
    "DefaultPreemption._by_amounts: if clean and len(found) >= most:": _NODES,
    "DefaultPreemption._compared": _NODES,
    "reasons[NOT_HELPFUL] += len(what_if.ruled_out) - len(np.intersect1d(what_if.ruled_out, asked))": _NODES,
    "rows = np.setdiff1d(what_if.rows, what_if.ruled_out, assume_unique=True)": _FASTER,
    "lacking = np.setdiff1d(lacking, asked, assume_unique=True)": _FASTER,
    "_not_helped: if nodes > tried:": "none are counted where there are none",
    "RowMemo.of": _KEPT,
    "WhatIf.count": _STEPS,
    "if selector is not None and each.match_label_keys:": "the API server takes matchLabelKeys beside a selector only",
}
