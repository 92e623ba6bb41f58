"""Queries of the page: why a pod waits, and where copies of another would fit.

The answers are those of the commands `explain` and `what-if`, on the tables that the page shows. A query changes the
tables only while it runs; the event loop runs nothing else meanwhile.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from config.protocol import names
from scheduler.kube import objects
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.cli.manifests import Manifest, Unanswerable
from scheduler.tools.explain.answers import Explanation
from scheduler.tools.explain.pod_summary import own_name
from scheduler.tools.explain.text import copies, fitting, headline, preempting, under_way

LONGEST_TEXT: Final = 253
_LARGEST: Final = 2**24
_MOST_CARDS: Final = 256
# Placing that many takes a tenth of a second on a large cluster.
_MOST_REPLICAS: Final = 100


class InvalidQuery(Exception):
    """The parameters of a query are invalid; the message says which."""


class Why(msgspec.Struct, rename="camel"):
    """Why a pod waits. headline, under_way, preempting: sentences, as the command prints them; "" for none."""

    headline: str
    under_way: tuple[str, ...]
    preempting: str
    answer: Explanation


class Fits(msgspec.Struct, rename="camel"):
    """Where copies fit, as the command prints it. places: node, cards, copies. next: why no further copy fits."""

    headline: str
    words: tuple[str, ...]
    places: list[tuple[str, str, str]]
    next: Explanation | None


async def why(view: ClusterView, namespace: str, name: str) -> Why:
    """Explain a pod. Raises Unanswerable."""
    answer = await view.explained(namespace, name)
    return Why(f"Pod {answer.pod} {headline(answer)}", tuple(under_way(answer)), preempting(answer), answer)


async def what_if(view: ClusterView, query: Mapping[str, str]) -> Fits:
    """Return how many pods of the query would fit now. Raises InvalidQuery, and Unreadable."""
    replicas = number(query.get("replicas"), 1)
    if not 1 <= replicas <= _MOST_REPLICAS:
        message = f"expected 1 to {_MOST_REPLICAS} copies"
        raise InvalidQuery(message)
    pod, words = await view.prioritized(Manifest(_wire(view, query), ""))
    try:
        answer = view.what_if(pod, replicas, words)
    except Unanswerable as error:
        raise InvalidQuery(str(error)) from error
    return Fits(fitting(answer), answer.words, copies(answer), answer.next)


def _wire(view: ClusterView, query: Mapping[str, str]) -> objects.PodObject:
    resources = view.reader.resources
    units, cards = number(query.get("units"), -1), number(query.get("cards"), 1)
    if not 0 <= units <= _LARGEST or not 1 <= cards <= _MOST_CARDS:
        message = f"expected 0 to {_LARGEST} units of memory and 1 to {_MOST_CARDS} cards"
        raise InvalidQuery(message)
    limits = {resources.gpu_mem: str(units)} if units else {}
    limits |= {name: query[name][:LONGEST_TEXT] for name in ("cpu", "memory") if query.get(name)}
    annotations = {names.EXCLUSIVE: "true"} if query.get("exclusive") == "true" else {}
    annotations |= {resources.gpu_count: str(cards)} if cards > 1 else {}
    document = {
        "metadata": {"name": "what-if", "uid": "what-if", "annotations": annotations},
        "spec": {
            "schedulerName": own_name(view.reading.engine),
            "nodeSelector": _selector(query.get("selector", "")),
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }
    return msgspec.convert(document, objects.PodObject)


def _selector(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for term in filter(None, map(str.strip, text[: 4 * LONGEST_TEXT].split(","))):
        key, equals, value = term.partition("=")
        if not equals:
            message = f"expected labels as key=value, found {term!r}"
            raise InvalidQuery(message)
        found[key.strip()] = value.strip()
    return found


def number(text: str | None, otherwise: int) -> int:
    """Return the number; `otherwise` if it is missing, or not a whole number of at most 18 digits."""
    readable = text is not None and text.isascii() and text.isdigit() and len(text) < len(str(2**63))
    return int(text) if text is not None and readable else otherwise
