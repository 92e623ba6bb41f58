"""A cluster in memory that holds whatever was made of an object, and the scheduler's connection to it.

An API server keeps some promises whatever is written: an object has its name, its namespace and a uid, which stay, and
a pod that has a node keeps it. So they are kept here. Everything else is as the case has it
(docs/develop/decisions/0056).
"""

import asyncio
import io
import logging
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec.structs import replace
from prometheus_client import generate_latest

from config.protocol.quantity import QuantityError
from scheduler.core.build import build_engine
from scheduler.core.effects import Audited, NodeAudited
from scheduler.core.ledger_audit import LedgerAudit
from scheduler.dispatch.audit_problems import problems
from scheduler.kube import objects, port
from scheduler.kube.port import Kind, WatchEvent
from scheduler.kube.rest.decoding import Decoder
from scheduler.state.audit import AuditRound
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node
from tests.support.placing import a_round
from tests.support.service.process import A_MOMENT_S, AT_ONCE, service_on, world
from tests.support.service.wire import Posts, Wire

if TYPE_CHECKING:
    from scheduler.kube.problem import Problem

# Nobody but the good pods may be here, so nothing that a case does can be a reason for one of them to wait.
GOOD: Final = "good"
_RESERVED: Final = objects.Taint("reserved", "NoSchedule", GOOD)
_TOLERATION: Final = {"key": "reserved", "operator": "Equal", "value": GOOD, "effect": "NoSchedule"}
_FIRST: Final = 2_000_000_000
_SOON_S: Final = 2.0


class FuzzedWire(Wire):
    """unreadable: what the decoder has made of an object that it could not decode, by its kind, namespace and name."""

    def __init__(self, of: World) -> None:
        super().__init__(of, Posts(of))
        self.unreadable: dict[tuple[str, str, str], port.Undecodable] = {}

    def _garble(self, event: WatchEvent[Any]) -> WatchEvent[Any]:
        if isinstance(event, port.Changed):
            meta, kind = event.object.metadata, event.object.API_KIND or type(event.object).__name__
            return self.unreadable.get((kind, meta.namespace, meta.name), event)
        return event

    def _learn(self, event: WatchEvent[Any]) -> None:
        try:
            super()._learn(event)
        except QuantityError:
            return  # as the scheduler leaves it out


class Cluster:
    """A good node, whatever the cases make, and a scheduler that is told of it; inside an event loop of virtual time.

    task: the service; it never ends by itself. problems: what the last audit has reported.
    """

    def __init__(self, seed: int) -> None:
        self.log = io.BytesIO()
        _log_to(self.log)
        self.world = world()
        self.wire = FuzzedWire(self.world)
        self.world.nodes.add(wire_node(GOOD, [16, 16], taints=(_RESERVED,)))
        self.engine, reader = build_engine(AT_ONCE)
        self.service, self.metrics = service_on(self.wire, self.engine, reader, seed=seed)
        self.task = asyncio.create_task(self.service.run())
        self.problems: list[Problem] = []
        self._decoders = {kind.name: Decoder(kind) for kind in port.KINDS}

    async def comes(self, kind: Kind[Any], text: bytes, meta: objects.ObjectMeta) -> float:
        """The object is now what `text` says; seconds of the processor until all of that has been seen and decided.

        meta: what the API server sees to, whatever the text says: name, namespace, uid.
        """
        began_s = time.process_time()
        try:
            event = self._decoders[kind.name].watched(b'{"type":"MODIFIED","object":' + text + b"}")
        except port.ApiError:
            return 0.0  # no line of an API server: the watch is opened again
        key = (kind.api_kind, meta.namespace, meta.name)
        if isinstance(event, port.Changed):
            self.wire.unreadable.pop(key, None)
            self._put(kind, _with(event.object, meta))
        else:
            assert isinstance(event, port.Undecodable), event
            self.wire.unreadable[key] = event
            self._put(kind, _blank(kind, meta))
        await asyncio.sleep(A_MOMENT_S)
        self.check_alive()
        return time.process_time() - began_s

    async def goes(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Removed at once, if it is there."""
        collection = self.world.collection(kind)
        if collection.find(namespace, name) is not None:
            collection.remove(namespace, name)
            self.wire.unreadable.pop((kind.api_kind, namespace, name), None)
        await asyncio.sleep(A_MOMENT_S)
        self.check_alive()

    async def good_pod(self, number: int) -> float:
        """A pod with a place of its own comes, is bound, and goes; seconds of the processor that this took."""
        name = f"{GOOD}-{number}"
        began_s = time.process_time()
        self.world.pods.create(
            manifest(name, 1, namespace=GOOD, priority=_FIRST, tolerations=[_TOLERATION], nodeSelector=_AT_GOOD)
        )
        await asyncio.sleep(_SOON_S)
        took_s = time.process_time() - began_s
        self.check_alive()
        found = self.world.pods.collection.existing(GOOD, name)
        assert found.spec.node_name == GOOD, f"a good pod waits: {found.status.conditions}"
        self.world.pods.remove(GOOD, name)
        await asyncio.sleep(A_MOMENT_S)
        return took_s

    def said(self) -> str:
        """All that the service has told anybody: log lines, Events, conditions, bindings, metrics."""
        events = [repr(event.record) for event in self.world.events]
        conditions = [message for _, _, message in self.wire.conditions]
        bindings = [repr(binding) for _, binding in self.wire.bindings]
        metrics = generate_latest(self.metrics.registry).decode()
        return "\n".join([*events, *conditions, *bindings, metrics, self.log.getvalue().decode()])

    def audited(self) -> AuditRound:
        """A round of the audit now."""
        self.problems.clear()
        effects = a_round(LedgerAudit(self.engine.tables, period_s=1.0))
        for effect in effects:
            if isinstance(effect, NodeAudited):
                self.problems += problems(effect.audit)
        ended = effects[-1]
        assert isinstance(ended, Audited)
        return ended.round

    def check_alive(self) -> None:
        """Raise what has ended the service."""
        if self.task.done():
            self.task.result()

    async def end(self) -> None:
        """As SIGKILL does."""
        self.task.cancel()
        await asyncio.wait({self.task})
        structlog.reset_defaults()

    def _put(self, kind: Kind[Any], wanted: Any) -> None:  # noqa: ANN401 - of whatever kind
        collection = self.world.collection(kind)
        before = collection.find(wanted.metadata.namespace, wanted.metadata.name)
        if before is not None and before.metadata.uid != wanted.metadata.uid:
            collection.remove(wanted.metadata.namespace, wanted.metadata.name)
            before = None
        if before is None:
            collection.create(wanted)
            return
        if isinstance(before, objects.PodObject) and before.spec.node_name:
            wanted = replace(wanted, spec=replace(wanted.spec, node_name=before.spec.node_name))
        collection.replace(wanted)


_AT_GOOD: Final = {"kubernetes.io/hostname": GOOD}


def _log_to(log: io.BytesIO) -> None:
    """Every line, of every level."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _as_bytes],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.BytesLoggerFactory(log),
        cache_logger_on_first_use=False,
    )


def _as_bytes(_logger: object, _method: str, line: MutableMapping[str, Any]) -> bytes:
    return repr(line).encode(errors="backslashreplace")


def _with(found: Any, meta: objects.ObjectMeta) -> Any:  # noqa: ANN401 - of whatever kind
    """As the API server would have it; and no pod tolerates everything, for it could come to the good node."""
    found = replace(found, metadata=replace(found.metadata, name=meta.name, namespace=meta.namespace, uid=meta.uid))
    if isinstance(found, objects.PodObject):
        some = tuple(one for one in found.spec.tolerations if one.key)
        found = replace(found, spec=replace(found.spec, tolerations=some))
    return found


def _blank(kind: Kind[Any], meta: objects.ObjectMeta) -> Any:  # noqa: ANN401 - of whatever kind
    """Stands in the store for what cannot be decoded."""
    return kind.type(metadata=meta)
