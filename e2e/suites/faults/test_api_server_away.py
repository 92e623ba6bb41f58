"""The API server is away and comes back: what a user waits for."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from e2e.control_plane.cluster import ControlPlane
from e2e.support.gpu_site import GpuSite
from tests.support.clocks.quickest import quickest

# A client that doubled its waits from 0.1 s without a limit would ask again 4 s after the return of the server.
AWAY_S = 8.0
BOUND_WITHIN_S = 2.0
Away = Callable[[ControlPlane], Awaitable[None]]


async def killed(cluster: ControlPlane) -> None:
    """No connection is accepted; started again, it has forgotten every watch."""
    with cluster.cut_off(kill=True):
        await asyncio.sleep(AWAY_S)


async def stopped(cluster: ControlPlane) -> None:
    """Connections stay, and nothing comes."""
    pid = cluster.pids["kube-apiserver"]
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(AWAY_S)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("away", [killed, stopped])
async def test_a_new_pod_is_bound_within_two_seconds_of_the_servers_return(
    site: GpuSite, control_plane: ControlPlane, capsys: pytest.CaptureFixture[str], away: Away
) -> None:
    await site.nodes(a=[16])

    async def bound_after_s(turn: int) -> float:
        await away(control_plane)
        returned_s = time.monotonic()
        await site.pod(f"p-{turn}", 3)
        await site.bound(f"p-{turn}")
        return time.monotonic() - returned_s

    # A watch is made again up to a second later.
    took_s = await quickest(bound_after_s, BOUND_WITHIN_S)
    with capsys.disabled():
        sys.stdout.write(f"\n  {away.__name__} for {AWAY_S:.0f} s: bound {took_s:.2f} s after its return\n")
    assert took_s < BOUND_WITHIN_S
