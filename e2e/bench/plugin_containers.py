"""Real containers on a real node: how long a batch of pods takes to run, with our scheduler and our device plugin."""

import asyncio
import contextlib
import io
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from config.protocol import names
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS
from e2e.support.shared_node import GIB, SharedNode, pods, settled, shared_node, shared_pod, sharing

_CARDS_MIB: Final = (40 * GIB, 40 * GIB, 40 * GIB, 40 * GIB)
_WITHIN_S: Final = 300.0
_ANSWER_WITHIN_S: Final = 5.0
_TAIL: Final = 0.99
_BUCKETS: Final = "gpushare_device_plugin_call_duration_seconds_bucket"


class NotRunning(Exception):
    """Pods did not run in time; the message names them."""


@dataclass(frozen=True, slots=True)
class Started:
    """seconds: from the first pod seen bound to the last seen running. wrong: a message for each mismatch of a card.

    pre_start_ms: between these two lies the p99 of PreStartContainer, as the plugin's own histogram has it.
    """

    pods: int
    seconds: float
    pre_start_ms: tuple[float, float]
    wrong: list[str]


def start_containers(count: int) -> Started:
    """Run so many pods at once on a node of their own. Raises NotRunning, and what ControlPlane and LocalNode raise."""
    with (
        _quiet(),
        ControlPlane(controller_manager=True) as cluster,
        LocalNode(cluster, "n1") as node,
        shared_node(node, _CARDS_MIB) as shared,
    ):
        return asyncio.run(_started(shared, count))


async def _started(shared: SharedNode, count: int) -> Started:
    wanted = [shared_pod(f"container-{number}", [sharing(1 + number % 3)]) for number in range(count)]
    async with Admin(shared.node.cluster.access()) as admin:
        watching = asyncio.create_task(_until_all_run(admin, {pod["metadata"]["name"] for pod in wanted}))
        async with pods(admin, wanted):
            seconds, found = await watching
            text = await asyncio.to_thread(_metrics, shared.plugin.port)
            wrong = [mismatch for pod in found for mismatch in _wrong(shared, pod)]
    low_s, high_s = tail_within(text, "PreStartContainer", _TAIL)
    return Started(count, seconds, (low_s * 1000, high_s * 1000), wrong)


def tail_within(text: str, call: str, share: float) -> tuple[float, float]:
    """Bounds in seconds, as the buckets have them, of the time that `share` of the calls did not exceed.

    text: what `/metrics` answers. The upper bound may be infinite. Raises ValueError when there was no such call.
    """
    buckets = sorted(
        (float(sample.labels["le"]), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == _BUCKETS and sample.labels["call"] == call
    )
    if not buckets or not buckets[-1][1]:
        message = f"/metrics has no {call}"
        raise ValueError(message)
    rank, below_s = share * buckets[-1][1], 0.0
    for bound_s, calls in buckets:
        if calls >= rank:
            return below_s, bound_s
        below_s = bound_s
    return below_s, below_s


async def _until_all_run(admin: Admin, waiting: set[str]) -> tuple[float, Sequence[Json]]:
    """Seconds from the first that has a node to the last that has settled, and all of them. Raises NotRunning."""
    first_s, done = 0.0, {}
    try:
        async with asyncio.timeout(_WITHIN_S):
            while True:
                # The server ends a watch now and then; the next one begins with what there is.
                async for line in admin.watch(PODS):
                    pod = msgspec.json.decode(line)["object"]
                    name = pod["metadata"]["name"]
                    if name not in waiting:
                        continue
                    if pod["spec"].get("nodeName"):
                        first_s = first_s or time.monotonic()
                    if settled(pod):
                        done[name] = pod
                    if len(done) == len(waiting):
                        return time.monotonic() - first_s, list(done.values())
    except TimeoutError:
        missing = ", ".join(sorted(waiting - done.keys()))
        message = f"not running within {_WITHIN_S:.0f} s: {missing}"
        raise NotRunning(message) from None


def _wrong(shared: SharedNode, pod: Json) -> list[str]:
    status = pod["status"]
    if status["phase"] == "Failed":
        return [f"{pod['metadata']['name']} failed: {status.get('message', status.get('reason', 'no reason'))}"]
    if names.ALLOCATION not in pod["metadata"]["annotations"]:
        return [f"{pod['metadata']['name']} runs without an allocation"]
    return shared.mismatches(pod)


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_ANSWER_WITHIN_S) as answer:
        text: str = answer.read().decode()
    return text


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the ends of the servers' logs to ourselves, unless something fails."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    except BaseException:
        sys.stderr.write(said.getvalue())
        raise
