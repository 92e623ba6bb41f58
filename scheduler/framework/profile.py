"""Plugins of one profile, and the subset that applies to one class of pods."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np

from scheduler.framework.answers import PluginError
from scheduler.framework.card_rules import NO_CARD_RULES, CardRules
from scheduler.framework.evaluation_cache import ClassRules, Weighted
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardScorePlugin,
    CardSetPlugin,
    FilterPlugin,
    Normalization,
    PermitPlugin,
    Plugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, Amount
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array

_OURS: Final = "scheduler.plugins."


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Plugins for each extension point, in order. score: (plugin, weight).

    signature_plugins, volatile_plugins: rules that define `signature` or `cache_key`. facts: facts that the rules read,
    no duplicates. over_domains: rules that read other rows. wakes_on: for each filter, the bits of Change that can
    alter its rejections, without DOMAINS.
    """

    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filter: tuple[FilterPlugin, ...] = ()
    post_filter: tuple[Plugin, ...] = ()
    score: tuple[Weighted, ...] = ()
    card_filter: tuple[CardFilterPlugin, ...] = ()
    card_score: tuple[CardScorePlugin, ...] = ()
    card_set: CardSetPlugin | None = None
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()
    _of_node: frozenset[Plugin] = field(init=False)
    over_domains: frozenset[Plugin] = field(init=False)
    signature_plugins: tuple[Plugin, ...] = field(init=False, compare=False)
    volatile_plugins: tuple[Plugin, ...] = field(init=False, compare=False)
    facts: tuple[type[Any], ...] = field(init=False, compare=False)
    wakes_on: Mapping[Plugin, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Read the declarations of the plugins once."""
        judging = tuple(self.judging())
        over_domains = frozenset(plugin for plugin in judging if plugin.depends & Change.DOMAINS)
        for plugin in self._of_cards():
            if plugin in over_domains:
                message = (
                    f"plugin {plugin.name}: a rule about cards depends on DOMAINS; expected only the cards' own node"
                )
                raise PluginError(message)
        for plugin, _ in self.score:
            by_itself = plugin.normalization is Normalization.NONE and not plugin.depends & ~Change.NODE
            if type(plugin).cluster_input is not ScorePlugin.cluster_input and not by_itself:
                message = f"plugin {plugin.name}: has a cluster_input; expected no normalization and only node fields"
                raise PluginError(message)
        of_node = frozenset(plugin for plugin in judging if not plugin.depends & (Change.BOOKINGS | Change.DOMAINS))
        object.__setattr__(self, "over_domains", over_domains)
        object.__setattr__(self, "_of_node", of_node)
        self._note_declared(judging)

    def minimum_request(self, pod: Pod) -> Int64Array:
        """Return int64[amounts]: the minimum of each amount that the pod needs on a row, over all filters."""
        minimum = np.full(len(Amount), NOTHING, dtype=np.int64)
        for plugin in self.filter:
            for amount, needed in plugin.minimum_request(pod).items():
                minimum[amount] = max(minimum[amount], needed)
        return minimum

    @property
    def has_rules_of_others(self) -> bool:
        """True if a rule comes from another package, because such a rule may read anything."""
        return any(not type(plugin).__module__.startswith(_OURS) for plugin in self.judging())

    def judging(self) -> Iterator[Plugin]:
        """Yield each plugin that evaluates nodes or cards, once."""
        scorers = (plugin for plugin, _ in self.score)
        yield from dict.fromkeys(
            (*self.pre_filter, *self.filter, *scorers, *self._of_cards(), *self.reserve, *self.permit)
        )

    def card_rules(self, skipped: Collection[Plugin]) -> CardRules:
        """Return the card plugins whose PreFilter did not return SKIP."""
        filters = tuple(plugin for plugin in self.card_filter if plugin not in skipped)
        scorers = tuple(plugin for plugin in self.card_score if plugin not in skipped)
        chooser = None if self.card_set in skipped else self.card_set
        rules = (*filters, *scorers, *(() if chooser is None else (chooser,)))
        if not rules:
            return NO_CARD_RULES
        return CardRules(filters, scorers, chooser, reduce(or_, (int(rule.depends) for rule in rules)))

    def class_rules(self, pod: Pod, skipped: Collection[Plugin]) -> ClassRules:
        """Return the plugins that apply to the pod: not skipped by PreFilter, and scorers that score it."""
        of_node, over_domains = self._of_node, self.over_domains
        filters = tuple(plugin for plugin in self.filter if plugin not in skipped)
        scoring = tuple((plugin, weight) for plugin, weight in self.score if plugin.scores(pod))
        kept = tuple(pair for pair in scoring if pair[0] not in over_domains)
        plain = tuple(pair for pair in kept if pair[0].normalization is Normalization.NONE)
        normalized = tuple(pair for pair in kept if pair[0].normalization is not Normalization.NONE)
        return ClassRules(
            filters=filters,
            node_filters=tuple(plugin for plugin in filters if plugin in of_node),
            booking_filters=tuple(p for p in filters if p not in of_node and p not in over_domains),
            domain_filters=tuple(plugin for plugin in filters if plugin in over_domains),
            node_scorers=tuple(pair for pair in plain if pair[0] in of_node),
            booking_scorers=tuple(pair for pair in plain if pair[0] not in of_node),
            normalized=normalized,
            normalized_by_bookings=tuple(plugin not in of_node for plugin, _ in normalized),
            domain_scorers=tuple(pair for pair in scoring if pair[0] in over_domains),
            of_cluster=tuple(p for p, _ in plain if type(p).cluster_input is not ScorePlugin.cluster_input),
        )

    def _note_declared(self, judging: Sequence[Plugin]) -> None:
        signature_plugins = tuple(p for p in judging if type(p).signature is not Plugin.signature)
        object.__setattr__(self, "signature_plugins", signature_plugins)
        object.__setattr__(
            self, "volatile_plugins", tuple(p for p in judging if type(p).cache_key is not Plugin.cache_key)
        )
        object.__setattr__(self, "facts", tuple(dict.fromkeys(fact for plugin in judging for fact in plugin.facts)))
        wakes_on = {p: int(p.depends & ~Change.DOMAINS | Change.EXISTENCE) for p in self.filter}
        object.__setattr__(self, "wakes_on", wakes_on)

    def _of_cards(self) -> tuple[Plugin, ...]:
        return (*self.card_filter, *self.card_score, *(() if self.card_set is None else (self.card_set,)))
