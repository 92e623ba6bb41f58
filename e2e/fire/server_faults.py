"""Faults of whole processes: a replica of the scheduler, its way to the API server, that server, etcd; and a policy.

Each is one event, so that a test can do it once and a long run again and again.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from e2e.control_plane.admin import Admin, Json
from e2e.fire.beside import beside
from e2e.fire.site import Replica, Site
from e2e.support import policy_site

POLICY: Final = "fire-refuses-a-third"
REFUSED_BY: Final = f"ValidatingAdmissionPolicy '{POLICY}'"
_ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
_IN_FORCE_WITHIN_S: Final = 15.0
_LOOK_EVERY_S: Final = 0.05


async def kill_scheduler(site: Site, away_s: float, replica: Replica | None = None, *, kill: bool = True) -> None:
    """SIGKILL or SIGTERM, and start it again after so long. replica: the first one by default."""
    one = replica or site.replicas[0]
    async with one.program:
        site.say(f"{'SIGKILL' if kill else 'SIGTERM'} of {site.described(one)}")
        await beside(one.scheduler.kill if kill else one.scheduler.stop)
        # What it had sent may take effect for as long as its successor waits, and not later (docs/develop/protocol.md).
        one.proxy.release()
        await asyncio.sleep(away_s)
        await beside(one.scheduler.start)
        site.say(f"{one.name} starts again")


async def stop_apiserver(site: Site, away_s: float, *, kill: bool, which: int = 0) -> None:
    """No API server, or one less, for so long, and as long as it takes to start."""
    async with site.servers:
        name = "the API server" if which == 0 else "the second API server"
        site.say(f"{name} is {'killed' if kill else 'stopped'}")
        if kill:
            os.kill(site.cluster.pids["kube-apiserver" if which == 0 else f"kube-apiserver-{which}"], signal.SIGKILL)
        await beside(partial(site.cluster.stop_apiserver, which))
        await asyncio.sleep(away_s)
        await beside(partial(site.cluster.start_apiserver, which))
        site.say(f"{name} is ready again")


@asynccontextmanager
async def two_api_servers(site: Site) -> AsyncIterator[None]:
    """Each request goes to either of two, of which one may not know yet what the other has told.

    One that is gone still gets requests, which are lost: no load balancer notices at once.
    """
    await beside(partial(site.cluster.start_apiserver, 1))
    urls, rng = site.cluster.urls, site.rng("which API server")
    for one in site.replicas:
        one.proxy.server = lambda: rng.choice(urls)
    site.say("there are two API servers")
    try:
        yield
    finally:
        for one in site.replicas:
            one.proxy.server = None
        await beside(partial(site.cluster.stop_apiserver, 1))


async def kill_etcd(site: Site, away_s: float) -> None:
    """SIGKILL of etcd, which comes back with its data."""
    async with site.servers:
        site.say("SIGKILL of etcd")
        await beside(site.cluster.kill_etcd)
        await asyncio.sleep(away_s)
        await beside(site.cluster.start_etcd)
        site.say("etcd answers again")


async def freeze_scheduler(site: Site, away_s: float, replica: Replica | None = None) -> None:
    """SIGSTOP, and SIGCONT after so long: for the process no time has passed. replica: the first one by default."""
    one = replica or site.replicas[0]
    async with one.program:
        if one.scheduler.child.process.poll() is not None:
            return
        site.say(f"SIGSTOP of {site.described(one)}")
        pid = one.scheduler.child.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(away_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        site.say(f"SIGCONT of {one.name}")


async def cut_off(site: Site, away_s: float, replica: Replica, *, silent: bool) -> None:
    """Nothing gets through between this replica and the API server for so long."""
    site.say(f"{'silence' if silent else 'no connection'} between {site.described(replica)} and the API server")
    await replica.proxy.away(away_s, silent=silent)
    site.say(f"{replica.name} reaches the API server again")


@asynccontextmanager
async def refusing(admin: Admin, pods: str) -> AsyncIterator[None]:
    """While entered, a policy refuses a third of all decisions.

    A policy has neither chance nor memory; the nanoseconds of the decision, which a binding carries, are as good: each
    decision has its own, and the same binding sent again has the same. Bindings of kube-scheduler have none, and pass.
    """
    documents = _policy()
    await policy_site.apply(admin, documents)

    written = {"name": "nobody", "annotations": {_ASSUME_TIME: "3"}}
    body: Json = {"metadata": written, "target": {"kind": "Node", "name": "nowhere"}}
    try:
        # It is taken into use a little after it was written.
        async with asyncio.timeout(_IN_FORCE_WITHIN_S):
            path = f"{pods}/nobody/binding?dryRun=All"
            while REFUSED_BY not in (await admin.post(path, body)).body["message"]:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(_LOOK_EVERY_S)
        yield
    finally:
        await policy_site.remove(admin, documents)


def _policy() -> list[Json]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    written = "has(object.metadata.annotations)", f"'{_ASSUME_TIME}' in object.metadata.annotations"
    third = f"int(object.metadata.annotations['{_ASSUME_TIME}']) % 3 == 0"
    taken = f"!({' && '.join([*written, third])})"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": POLICY}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": taken, "message": "this decision is one of a third"}],
    }
    binding = {"policyName": POLICY, "validationActions": ["Deny"]}
    return [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]
