"""Plugins of one profile, and the subset that applies to one class of pods."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

import numpy as np

from scheduler.framework.answers import PluginError
from scheduler.framework.card_rules import NO_CARD_RULES, CardRules, OnlyCards
from scheduler.framework.evaluation_cache import ClassRules, Weighted
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardScorePlugin,
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Plugins for each extension point, in order. score: (plugin, weight)."""

    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filter: tuple[FilterPlugin, ...] = ()
    post_filter: tuple[Plugin, ...] = ()
    score: tuple[Weighted, ...] = ()
    card_filter: tuple[CardFilterPlugin, ...] = ()
    card_score: tuple[CardScorePlugin, ...] = ()
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()

    def __post_init__(self) -> None:
        """Raise PluginError for a card rule that depends on other nodes."""
        for plugin in self._of_cards():
            if plugin in self.over_domains:
                message = (
                    f"plugin {plugin.name}: a rule about cards depends on DOMAINS; expected only the cards' own node"
                )
                raise PluginError(message)

    @cached_property
    def over_domains(self) -> frozenset[Plugin]:
        """Rules that read other rows."""
        return frozenset(plugin for plugin in self.judging() if plugin.depends & Change.DOMAINS)

    @cached_property
    def _of_node(self) -> frozenset[Plugin]:
        return frozenset(p for p in self.judging() if not p.depends & (Change.BOOKINGS | Change.DOMAINS))

    @cached_property
    def signature_plugins(self) -> tuple[Plugin, ...]:
        """Rules that define `signature`."""
        return tuple(plugin for plugin in self.judging() if type(plugin).signature is not Plugin.signature)

    @cached_property
    def volatile_plugins(self) -> tuple[Plugin, ...]:
        """Rules that define `cache_key`, without those of which only the scores are discarded."""
        return tuple(p for p in self.judging() if type(p).cache_key is not Plugin.cache_key and not _is_rescored(p))

    @cached_property
    def wakes_on(self) -> dict[Plugin, int]:
        """For each filter, the bits of Change that can alter its rejections, without DOMAINS."""
        return {plugin: int(plugin.depends & ~Change.DOMAINS | Change.EXISTENCE) for plugin in self.filter}

    def minimum_request(self, pod: Pod) -> Int64Array:
        """Return int64[amounts]: the minimum of each amount that the pod needs on a row, over all filters."""
        minimum = np.full(len(Amount), NOTHING, dtype=np.int64)
        for plugin in self.filter:
            for amount, needed in plugin.minimum_request(pod).items():
                minimum[amount] = max(minimum[amount], needed)
        return minimum

    def judging(self) -> Iterator[Plugin]:
        """Yield each plugin that evaluates nodes or cards, once."""
        scorers = (plugin for plugin, _ in self.score)
        yield from dict.fromkeys(
            (*self.pre_filter, *self.filter, *scorers, *self._of_cards(), *self.reserve, *self.permit)
        )

    def card_rules(self, skipped: Collection[Plugin], only: frozenset[int] | None = None) -> CardRules:
        """Return the card plugins whose PreFilter did not return SKIP. only: see `Runtime.begin`."""
        filters = tuple(plugin for plugin in self.card_filter if plugin not in skipped)
        if only is not None:
            filters = (*filters, OnlyCards(only))
        scorers = tuple(plugin for plugin in self.card_score if plugin not in skipped)
        if not filters and not scorers:
            return NO_CARD_RULES
        return CardRules(filters, scorers, reduce(or_, (int(rule.depends) for rule in (*filters, *scorers))))

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
            rescored=tuple(plugin for plugin, _ in plain if _is_rescored(plugin)),
        )

    def _of_cards(self) -> tuple[Plugin, ...]:
        return (*self.card_filter, *self.card_score)


def _is_rescored(plugin: Plugin) -> bool:
    """Whether another `cache_key` of the rule leaves all but its scores valid."""
    return (
        type(plugin).cache_key is not Plugin.cache_key
        and isinstance(plugin, ScorePlugin)
        and not isinstance(plugin, FilterPlugin | PreFilterPlugin)
        and plugin.normalization is Normalization.NONE
        and not plugin.depends & ~Change.NODE
    )
