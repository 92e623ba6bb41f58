"""CardAffinity: only cards that hold, or do not hold, certain pods of the same namespace."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from config.protocol import names
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardRejection,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
)
from scheduler.plugins.card.card_holders import CardHolders
from scheduler.pods.pod import Pod
from scheduler.pods.selector_text import SelectorError
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.columns.selectors import Expressions, match, of_text

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

APART: Final = f"node(s) had too few cards without a pod that {names.CARD_ANTI_AFFINITY} matches"
TOGETHER: Final = f"node(s) had too few cards with a pod that {names.CARD_AFFINITY} matches"


@dataclass(frozen=True, slots=True)
class CardTerms:
    """Terms of a pod. together: its cards hold a matching pod; apart: they hold none. None: no such annotation."""

    together: Expressions | None
    apart: Expressions | None


_TERMS: Final = StateKey[CardTerms]("card_affinity.terms")


class CardAffinity(PreFilterPlugin, CardFilterPlugin):
    """Rejects cards without a pod that `gpushare/card-affinity` selects, or with one that the anti-affinity selects.

    The annotations `gpushare/card-affinity` and `gpushare/card-anti-affinity` hold a label selector as `kubectl -l`
    takes it: `app=web,tier in (a, b),!canary`. Pods of the same namespace that hold GPU memory on the card count; a pod
    whose card is unknown counts on every card of its node. The first pod of a group that shares a card must leave
    card-affinity out: there is no pod to join yet. The anti-affinity of a running pod does not affect new pods.

    - `node(s) had too few cards with a pod that gpushare/card-affinity matches`
    - `node(s) had too few cards without a pod that gpushare/card-anti-affinity matches`
    - `gpushare/card-affinity: "app in web": expected …`, for a selector that cannot be read
    """

    name: ClassVar[str] = "CardAffinity"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.CARDS | Change.COMPANY

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - the pod says all
        """The selectors, and the namespace and labels that they are about."""
        texts = (pod.annotations.get(names.CARD_AFFINITY), pod.annotations.get(names.CARD_ANTI_AFFINITY))
        if texts == (None, None):
            return None
        return (*texts, pod.key.namespace, _matches_itself(pod, texts[1]))

    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:  # noqa: ARG002 - as above
        """Read the selectors; skip pods without any."""
        try:
            terms = CardTerms(
                _expressions(pod.annotations, names.CARD_AFFINITY),
                _expressions(pod.annotations, names.CARD_ANTI_AFFINITY),
            )
        except SelectorError as error:
            return Rejected(str(error))
        if terms == CardTerms(None, None):
            return Relevance.SKIP
        state.write(_TERMS, terms)
        return Relevance.EVALUATE

    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:
        """Cards without company that is wanted, and those with company that is not."""
        terms, holders = state.read(_TERMS), tables.fact(CardHolders)
        rejections = []
        if terms.together is not None:
            rejections.append(CardRejection(~holders.matching(pod.key.namespace, terms.together, rows), TOGETHER))
        if terms.apart is not None:
            rejections.append(CardRejection(holders.matching(pod.key.namespace, terms.apart, rows), APART))
        return rejections


def _expressions(annotations: Mapping[str, str], key: str) -> Expressions | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return of_text(text)
    except SelectorError as error:
        raise SelectorError(f"{key}: {error}") from error


def _matches_itself(pod: Pod, text: str | None) -> bool:
    """Whether copies of the pod exclude each other; an unreadable selector excludes none."""
    try:
        return text is not None and match(of_text(text), pod.labels)
    except SelectorError:
        return False
