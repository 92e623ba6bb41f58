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
_FEATURES: Final = "scheduler/plugins/node/test_node_declared_features.py"
_CLASSES: Final = "scheduler/plugins/pod/test_classes_of_pods.py"
_OF_SPREAD: Final = (
    "scheduler/plugins/pod/test_pod_topology_spread.py",
    "scheduler/plugins/pod/test_default_spread.py",
    "scheduler/plugins/pod/test_spread_openings.py",
    "scheduler/plugins/pod/test_spread_histories.py",
)
_OF_PREEMPTION: Final = (
    "scheduler/plugins/preemption/test_who_may_go.py",
    "scheduler/plugins/node/test_compared_nodes.py",
    "scheduler/plugins/pod/test_dearer_by_rules.py",
    "scheduler/plugins/preemption/test_victims_by_amounts.py",
    "scheduler/plugins/preemption/test_victims.py",
    "scheduler/plugins/preemption/test_every_choice_of_victims.py",
    "scheduler/core/test_preemption_searches.py",
    "system/test_preemption.py",
    "system/test_kept_places.py",
    "system/test_removal_of_victims.py",
    "system/test_preemption_openings.py",
)
SUBJECTS: Final = (
    Subject("scheduler.plugins.node.node_unschedulable", ("unschedulable",)),
    Subject("scheduler.plugins.node.node_name", ("node_name",), tests=(_CLASSES,)),
    Subject(
        "scheduler.plugins.node.taint_toleration",
        ("taints", "unschedulable"),
        tests=("scheduler/plugins/node/test_taint_toleration.py",),
    ),
    Subject(
        "scheduler.plugins.node.node_affinity",
        ("node_affinity", "node_fields"),
        tests=("scheduler/plugins/node/test_node_affinity.py",),
    ),
    Subject("scheduler.plugins.node.node_ports", ("node_ports",), tests=("scheduler/plugins/node/test_node_ports.py",)),
    Subject(
        "scheduler.plugins.node.node_resources_fit",
        ("resources", "several_resources", "balance"),
        tests=(
            "scheduler/plugins/node/test_node_resources_fit.py",
            "scheduler/plugins/node/test_resource_allocation.py",
        ),
    ),
    Subject(
        "scheduler.plugins.pod.inter_pod_affinity",
        _AFFINITY,
        tests=("scheduler/plugins/pod/test_inter_pod_affinity.py",),
    ),
    Subject(
        "scheduler.plugins.pod.pod_topology_spread",
        ("spread_hard", "spread_soft", "spread_label_keys", "spread_policies"),
        tests=_OF_SPREAD,
    ),
    Subject(
        "scheduler.plugins.pod.spread_constraints",
        ("spread_hard", "spread_soft", "spread_domains", "spread_policies", "spread_label_keys"),
        tests=("scheduler/tools/explain/test_causes.py", *_OF_SPREAD),
    ),
    Subject(
        "scheduler.plugins.volume.volume_restrictions",
        ("volume_restrictions",),
        tests=("scheduler/plugins/volume/test_volume_restrictions.py", _CLASSES),
    ),
    Subject(
        "scheduler.plugins.volume.node_volume_limits",
        ("volume_limits",),
        tests=("scheduler/plugins/volume/test_node_volume_limits.py", _CLASSES),
    ),
    Subject(
        "scheduler.plugins.volume.volume_binding",
        ("volume_bound", "volume_static", "volume_dynamic"),
        tests=(
            "scheduler/plugins/volume/test_volume_binding.py",
            "scheduler/plugins/volume/test_volume_provision.py",
            _CLASSES,
        ),
    ),
    Subject(
        "scheduler.plugins.volume.volume_zone",
        ("volume_zone",),
        tests=("scheduler/plugins/volume/test_volume_zone.py", _CLASSES),
    ),
    Subject(
        "scheduler.state.volumes.matching",
        ("volume_static", "volume_dynamic"),
        tests=("scheduler/plugins/volume/test_volume_provision.py", "scheduler/plugins/volume/test_volume_binding.py"),
    ),
    Subject(
        "scheduler.plugins.node.resource_allocation",
        ("resources", "several_resources", "balance"),
        tests=(
            "scheduler/plugins/node/test_resource_allocation.py",
            "scheduler/plugins/node/test_node_resources_fit.py",
        ),
    ),
    Subject(
        "scheduler.plugins.node.node_resources_balanced_allocation",
        ("balance", "resources"),
        tests=("scheduler/plugins/node/test_node_resources_balanced_allocation.py",),
    ),
    Subject(
        "scheduler.plugins.node.image_locality", ("images",), tests=("scheduler/plugins/node/test_image_locality.py",)
    ),
    Subject("scheduler.plugins.node.node_declared_features", ("declared_features",), tests=(_FEATURES,)),
    Subject("scheduler.pods.declared_features", ("declared_features",), tests=(_FEATURES,)),
    Subject(
        "scheduler.pods.effective_requests",
        ("resources", "resized", "balance"),
        tests=("scheduler/pods/test_effective_requests.py", "scheduler/pods/test_pod.py"),
    ),
    Subject(
        f"{_COLUMNS}.node_terms",
        ("node_affinity", "node_fields", "volume_bound"),
        tests=("scheduler/plugins/node/test_node_affinity.py", "scheduler/state/columns/test_node_terms.py"),
    ),
    Subject(
        f"{_COLUMNS}.selectors",
        ("node_affinity", "existing_anti_affinity"),
        tests=("scheduler/state/columns/test_selectors.py", "scheduler/plugins/card/test_card_affinity.py"),
    ),
    Subject(
        "scheduler.state.facts.existing_terms",
        ("existing_anti_affinity", "preferred_affinity"),
        tests=("scheduler/state/facts/test_existing_terms.py",),
    ),
    Subject(f"{_COLUMNS}.images", ("images",), tests=("scheduler/state/columns/test_images.py",)),
    Subject("scheduler.plugins.preemption.victims", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject("scheduler.plugins.preemption.victims_by_amounts", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject(
        "scheduler.state.disruption_budgets",
        _PREEMPTION,
        orders=True,
        tests=("scheduler/state/test_disruption_budgets.py", *_OF_PREEMPTION),
    ),
    Subject("scheduler.plugins.preemption.default_preemption", _PREEMPTION, orders=True, tests=_OF_PREEMPTION),
    Subject(
        "scheduler.framework.what_if",
        _PREEMPTION,
        orders=True,
        tests=("scheduler/framework/test_what_if.py", *_OF_PREEMPTION),
    ),
    Subject(
        "scheduler.state.nominations",
        ("nominated", *_PREEMPTION),
        orders=True,
        tests=(
            "scheduler/state/test_nominations.py",
            "scheduler/core/test_conflicting_nominations.py",
            "scheduler/core/test_reservations.py",
            *_OF_PREEMPTION,
        ),
    ),
)
_KEPT: Final = (
    "when something is worked out again, and what keeping it costs: scheduler.testing.rules and its histories"
)
_CONFIGURED: Final = "the default profile does not configure it"
_ADMITTED: Final = "the API server admits no pod for which it matters"
_FASTER: Final = "another way to the same answer"
_BELOW: Final = "counted below nothing: all that is asked is whether it is nothing"
_SHARED: Final = "which objects nodes share: they are equal"
_ON_THE_POINT: Final = "on the point itself, the lines before it and after it say the same"
_OF_TWO: Final = "of two shares, both ways give half their difference"
_SQUARES: Final = (
    "the squares of the distances from the mean add up to the same as (share + mean) * (share - mean); strict"
)
_STEPS: Final = "how much is done in one step, not what comes of it"
_RULES: Final = "what plain amounts say is held against the rules, which say the same at last"
_STRICT: Final = "strict: the lists are as long as each other"
_ALONE: Final = (
    "alone = [holder for holder, rank, does in zip(holders, ranks, enough, strict=True) if does and rank == lowest]"
)
_ASKED: Final = (
    "asked = [amount for amount in Amount if amount is not Amount.CARD_UNITS and minimum[amount] != NOTHING]"
)
_GONE: Final = "return [*forced, *(holder for holder, gone in zip(open_to, best.tolist(), strict=True) if gone)]"
_ROOM: Final = "_left(tables, row, amount) - int(minimum[amount]) + sum(holder.amounts[place] for holder in holders)"
_NO_CHOICE: Final = (
    "if not forced and (one := _only_one(open_to, (held >= held.sum(axis=0) - room).all(axis=1).tolist())) is not None:"
)
_SHORT: Final = "short = tuple(_reason(amount, gpu_mem) for amount, room in zip(asked, rooms, strict=True) if room < 0)"
_SHORT_OF: Final = (
    "short = [place for place, room in enumerate(rooms) if room < sum(holder.amounts[place] for holder in holders)]"
)
_SEEN: Final = "if lower == len(self._hidden) or (self._tables.changes.version, *looks) == self._looked:"
_BOOKED: Final = "pod=pod, node=node, written=written, exclusive=is_exclusive(pod), assumed=False, nominated=True"
_LIKE: Final = "like = free.reachable.like(nodes, rows) if many and len(self._near) else None"
_MANY: Final = "free[class_name] = _Free(of_class.free, nodes, rows, many=len(waiting) > _FEW_CLAIMS)"
_LEAST: Final = "return (allocatable - requested) * FULL // allocatable if 0 < allocatable > requested else 0"
_SPREAD: Final = "deviation = sqrt(_sum([(share - mean) * (share - mean) for share in shares]) / len(shares))"
_OF_EACH: Final = "for share, each in zip(shares, there, strict=True)]"
_SQUARED: Final = f"squares = [np.where(each, (share - mean) * (share - mean), 0.0) {_OF_EACH}"
_OF_MANY: Final = "of_many = np.where(count > _PAIR, np.sqrt(sum(squares) / np.maximum(count, 1)), 0.0)"
_LOWEST: Final = (
    "lowest = np.minimum.reduce([np.where(each, share, 1.0) for share, each in zip(shares, there, strict=True)])"
)
_SHARED_OUT: Final = (
    "deviation = _deviation([np.where(each, share, 0.0) for share, each in zip(shares, there, strict=True)], there)"
)
_HARD: Final = "for each, of_row in zip(spread.hard, places, strict=True):"
_SOFT: Final = "for each, of_row in zip(spread.soft, places, strict=True):"
_OF_DOMAINS: Final = "for each, column in zip(spread.hard, columns, strict=True):"
_LESS: Final = "if allocatable.item(index, row) - requested.item(index, row) < amount:"
_AS_IT_WAS: Final = (
    "if 0 < len(found.victims) == len(potential) - len(stay) and what_if.is_as_it_was(found.row, since):"
)
# What no comparison with kube-scheduler can see, and why: a function, one line of it, or a line.
UNSEEN: Final[dict[str, str]] = {
    "tolerates: return False": f"an operator of tolerations behind a feature gate: {_ADMITTED}",
    "HostPorts.book: addresses[port.ip] += sign": _BELOW,
    "HostPorts._rows_with": _FASTER,
    "Required.size_bytes": _KEPT,
    "Matcher.size_bytes": _KEPT,
    f"least_allocated: {_LEAST}": "nobody requests less than nothing",
    "_points: if whole.size and whole.max() < _EXACT:": "at the bound itself both ways are exact",
    "_on_line: if utilization <= shape[0][0]:": _ON_THE_POINT,
    "_on_line: if utilization <= right:": _ON_THE_POINT,
    "_on_line: return low + steps if high >= low else low - steps": "a line that is level has no steps",
    "balance: elif len(shares) > _PAIR:": _OF_TWO,
    f"balance: {_SPREAD}": _SQUARES,
    f"_deviation: {_SQUARED}": _SQUARES,
    f"_deviation: {_OF_MANY}": _OF_TWO,
    f"_deviation: {_LOWEST}": _STRICT,
    f"balance_over: {_SHARED_OUT}": _STRICT,
    f"Requested.fits_on: {_LESS}": _FASTER,
    "NodeResourcesFit.filter: masks = zip(short, beyond, strict=True)": _STRICT,
    "NodeResourcesFit._requested": _KEPT,
    "VolumeBinding.reserve": "which volume a pod gets is not compared",
    "ImageLocality.cluster_input": "when all rows are scored again: every probe is asked once",
    "Images.shared: if len(self._known) > _MOST_KNOWN:": _SHARED,
    "Images.shared: if not status.images and not status.declared_features:": _SHARED,
    'name = claim.kept if count and matched[0] else ""': "which volume a pod gets is not compared",
    "if of_class is None or of_class.known is None or not active.any():": "a claim that waits has a class",
    "self.users[key] += sign": _BELOW,
    "rows[row] += sign": _BELOW,
    f"rejecting: {_HARD}": _STRICT,
    f"points: {_SOFT}": _STRICT,
    f"domains: {_OF_DOMAINS}": _STRICT,
    "return (-1, 0, 0, 0, 0)": "no victims: less than any key is all that it has to be",
    "return -pod.priority, pod.started or _LAST, pod.key.namespace, pod.key.name": "by name at last: chance there",
    "lower: if len(found) > MOST_VICTIMS:": _FASTER,
    "agreed: if tables.pods_on(found.row) > PODS_PER_STEP:": _STEPS,
    f"by_rules: {_AS_IT_WAS}": _FASTER,
    "shares_of: if request is None or chosen.slots is None:": "who asks for no card gets none: both, or neither",
    "return 320 + 8 * len(kept.names)": _KEPT,
    f"by_amounts: {_ASKED}": _FASTER,
    f"by_amounts: {_SHORT}": _STRICT,
    "say_all": _FASTER,
    "_left": _RULES,
    "_victims": _RULES,
    f"by_amounts: {_ROOM}": _RULES,
    "promising: if amount is not Amount.CARD_UNITS and minimum[amount] != NOTHING:": _FASTER,
    "promising: if request is not None and minimum[Amount.CARD_UNITS] != NOTHING:": _CONFIGURED,
    f"_fewest: {_SHORT_OF}": _FASTER,
    "_fewest: if not _FEWEST_OPEN < len(open_to) <= _MOST_OPEN:": _FASTER,
    f"_fewest: {_NO_CHOICE}": _FASTER,
    f"_fewest: {_GONE}": _STRICT,
    f"_only_one: {_ALONE}": _STRICT,
    "_sets: if comb(len(alone), request.cards) <= _MOST_COMPARED:": "no number of cards has so many sets exactly",
    "DefaultPreemption.post_filter: if best is None or (waiting and waiting[0][0] < best.key):": _STEPS,
    "rows = np.setdiff1d(what_if.rows, what_if.ruled_out, assume_unique=True)": _FASTER,
    "lacking = np.setdiff1d(lacking, asked, assume_unique=True)": _FASTER,
    "WhatIf.count: if len(self.rows) > _FEW_ROWS:": _STEPS,
    f"Nominations._see: {_SEEN}": _KEPT,
    f"Nominations.nominate: {_BOOKED}": "of a pod that is nominated, nobody asks whether it is assumed",
    "Nominations._see: minimum = None if len(shown) <= self.most_moved else self._least_of_row(pod)": _FASTER,
    f"_Free.__init__: {_LIKE}": _FASTER,
    f"find: {_MANY}": _FASTER,
    "_Free._ranks: left = np.flatnonzero(ranks < end)": "of a row that gets nothing there is nothing to look for",
    "_differs: return False": "a status without a size that runs is left out, before that or after it",
    "_raise: if amount > peak.get(name, 0):": "what is as much",
    "effective_requests: all_say = all(assumed.keys() <= own.keys() for own, _ in containers)": _FASTER,
    "if selector is not None and each.match_label_keys:": "the API server takes matchLabelKeys beside a selector only",
}
