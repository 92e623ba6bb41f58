"""What one namespace's user can do to another on a real API server; `tests/tenants` has the rest, in memory."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.suites.faults.tenants_site import ServerTenant, TenantsSite, Waits, tenants_site
from tests.tenants import changes, crowds, huge_objects
from tests.tenants.attack import Attack

SAMPLES = 80
# Two busy processors: what a turn of the test's own loop may be late.
ALLOWANCE_S = 0.05
# Seconds in place of the allowance. Decisions on new templates take one processor of two meanwhile: 0.16 to 0.67 s.
SLOWER_YET: dict[object, float] = {crowds.templates: 1.0}
# What the scheduler itself may add to each pod of the neighbour, measured against pods that are bound by hand.
MOST_ADDED_S = 0.1
MOST_TIMES_RSS = 1.2
TRIALS = 5
# Those that only create and delete, with the scale that a few seconds take.
CHOSEN = {
    huge_objects.resource_names: 1.0,
    huge_objects.affinity_terms: 1.0,
    huge_objects.host_ports: 1.0,
    huge_objects.init_containers: 1.0,
    crowds.templates: 0.05,
    crowds.odd_texts: 0.3,
    changes.flapping: 0.15,
}
# One of each kind.
BY_DAY = {huge_objects.resource_names, crowds.templates, changes.flapping}
BY_FUNCTION = {attack.acts: attack for attack in (*huge_objects.ATTACKS, *crowds.ATTACKS, *changes.ATTACKS)}


@pytest.fixture
async def site(
    scheduler: SchedulerProcess, cluster: provider.Target, admin: Admin, namespace: str
) -> AsyncIterator[TenantsSite]:
    await scheduler.ready()
    theirs = f"{namespace}-hostile"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": theirs}})
    async with (
        Admin(cluster.access()) as attacker,
        tenants_site(scheduler, admin, attacker, (namespace, theirs)) as made,
    ):
        yield made


@pytest.mark.parametrize(
    ("attack", "scale"),
    [
        pytest.param(BY_FUNCTION[acts], scale, id=acts.__name__, marks=() if acts in BY_DAY else pytest.mark.nightly)
        for acts, scale in CHOSEN.items()
    ],
)
async def test_no_attack_is_noticed_by_the_neighbour(site: TenantsSite, attack: Attack, scale: float) -> None:
    await site.waits(20)
    # The p99 of 80 pods is one pod's wait: what else the machine does can only make it longer.
    for _ in range(TRIALS):
        line, unnoticed = await trial(site, attack, scale)
        sys.stdout.write(f"  {line}\n")
        if unnoticed:
            return
    pytest.fail(line)


async def trial(site: TenantsSite, attack: Attack, scale: float) -> tuple[str, bool]:
    """(what was measured, whether the neighbour has noticed nothing)."""
    quiet, before = await site.waits(SAMPLES // 2), site.rss_bytes
    tenant = ServerTenant(site.attacker, site.paths[1], site.nodes, scale)
    attacking = asyncio.create_task(attack.acts(tenant))
    during = await site.waits(SAMPLES)
    ready, rss = (await site.scheduler.readyz()).strip(), site.rss_bytes
    await attacking
    await site.clear(site.paths[1])
    site.scheduler.child.check_alive()
    assert tenant.taken, attack.name
    assert ready == "ok", attack.name
    assert rss <= MOST_TIMES_RSS * before, attack.name
    line = f"{said(attack, tenant, quiet, during)}; RSS {before / 1e6:.0f} -> {rss / 1e6:.0f} MB"
    return line, noticed_nothing(quiet, during, SLOWER_YET.get(attack.acts, ALLOWANCE_S))


def noticed_nothing(quiet: Waits, during: Waits, allowance_s: float) -> bool:
    slower_s = max(0.0, during.by_hand_s - quiet.by_hand_s)
    return (
        during.added_s <= quiet.added_s + MOST_ADDED_S
        and during.ours_s <= 2 * quiet.ours_s + 2 * slower_s + allowance_s
    )


def said(attack: Attack, tenant: ServerTenant, quiet: Waits, during: Waits) -> str:
    return (
        f"{attack.name}: {tenant.taken} taken, {len(tenant.refused)} refused; p99 {quiet.ours_s * 1e3:.0f} -> "
        f"{during.ours_s * 1e3:.0f} ms, bound by hand {quiet.by_hand_s * 1e3:.0f} -> {during.by_hand_s * 1e3:.0f} ms, "
        f"added {quiet.added_s * 1e3:.0f} -> {during.added_s * 1e3:.0f} ms"
    )
