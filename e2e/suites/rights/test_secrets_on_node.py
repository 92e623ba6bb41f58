"""Everything that both programs say of a real cluster that is full of secrets: logs, pages, Events, files, commands."""

import asyncio
import json
import stat
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.control_plane.cluster import ControlPlane
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS
from e2e.programs import manifests
from e2e.suites.node.test_rejected_by_kubelet import has_failed, says
from e2e.suites.rights.secrets_site import CARD_UNITS, SecretsSite, secrets_site
from e2e.support import planted_secrets, policy_site
from e2e.support.gpu_site import NODES, gpu_node, is_bound
from e2e.support.planted_secrets import hits, secret
from e2e.support.shared_node import shared_pod, sharing

REFUSING: Final = "refuses-bindings"
POLICY: Final[list[Json]] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": REFUSING},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
                ]
            },
            "validations": [
                {
                    "expression": 'object.metadata.name != "refused"',
                    "message": "not on this cluster",
                    "reason": "Forbidden",
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": REFUSING},
        "spec": {"policyName": REFUSING, "validationActions": ["Deny"]},
    },
]
# Which the kubelet allows nobody unless it is told to.
UNSAFE: Final = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
BAD_GATEWAY: Final = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno\n"
FATAL: Final = 119
TOLD_WITHIN_S: Final = 30.0


@pytest.fixture(scope="module")
def node(node_ready: None) -> Iterator[LocalNode]:
    del node_ready
    with ControlPlane() as own, LocalNode(own, "n9") as started:
        yield started


async def pods_come(site: SecretsSite) -> None:
    """One that runs, one with a mistake, one that fits nowhere, one that the kubelet rejects."""
    await site.create(
        shared_pod("runs", [sharing(2)], initContainers=[sharing(1, name="before", restartPolicy="Always")])
    )
    await site.create(shared_pod("mistaken", [sharing(1)], metadata={"annotations": {"gpushare/exclusiv": "true"}}))
    await site.create(shared_pod("huge", [sharing(CARD_UNITS + 1)]))
    await site.create(shared_pod("rejected", [sharing(1)], securityContext=UNSAFE))
    await site.seen("runs", lambda found: found["status"].get("phase") == "Running")
    await site.seen("mistaken", is_bound)
    await site.seen("huge", says)
    await site.seen("rejected", has_failed)


async def a_binding_is_refused(site: SecretsSite) -> None:
    """By a policy."""
    await policy_site.apply(site.admin, POLICY)
    target = {"apiVersion": "v1", "kind": "Node", "name": site.node.name}
    probe = {"metadata": {"name": "refused"}, "target": target}
    await policy_site.until(
        REFUSING, lambda: site.admin.post(f"{PODS}/refused/binding?dryRun=All", probe), refused=True
    )
    await site.create(shared_pod("refused", [sharing(1)]))
    await site.seen("refused", lambda found: "not on this cluster" in says(found))


async def one_gets_past_the_scheduler(site: SecretsSite) -> None:
    """The kubelet waits for 10 s before it asks for its cards."""
    await site.create(shared_pod("by-hand", [sharing(1)], nodeName=site.node.name))
    await site.plugin.said("call.refused", within_s=TOLD_WITHIN_S)


async def an_object_cannot_be_read(site: SecretsSite) -> None:
    """What a node announces."""
    odd = gpu_node("odd", [16], **planted_secrets.in_node())
    odd["metadata"]["annotations"][names.INVENTORY] = "{no inventory"
    await site.admin.create(NODES, odd)
    await site.scheduler.said("object.bad", name="odd")


async def a_card_fails(site: SecretsSite) -> None:
    """With pods on it."""
    await site.plugin.happens(card=0, xid=FATAL)
    await site.plugin.said("notice", reason="GPUUnhealthy", within_s=TOLD_WITHIN_S)


async def commands_are_run(site: SecretsSite) -> None:
    """Of both programs; of a manifest that is as it should be, and of one whose environment is no list."""
    for pod in ("runs", "huge", "refused"):
        await site.run(f"explain {pod}", "explain", pod, "-o", "json")
    manifest = site.folder / "pod.json"
    wanted = planted_secrets.in_pod(shared_pod("wanted", [sharing(3)]))
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **wanted}), encoding="utf-8")
    await site.run("what-if", "what-if", "-f", str(manifest), "-o", "json")
    wanted["spec"]["containers"][0]["env"] = {"TOKEN": secret("env")}
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **wanted}), encoding="utf-8")
    await site.run("what-if of a mistake", "what-if", "-f", str(manifest))
    address = ["--address", f"127.0.0.1:{site.plugin.port}", "-o", "json"]
    await site.run_on_node("status", "status", *address)
    await site.run_on_node("doctor", "doctor", "--config", str(site.plugin.configuration), *address)


async def the_proxy_fails(site: SecretsSite) -> None:
    """For both, with an answer of its own; then by the password, which is another one now."""
    for answer in (BAD_GATEWAY, b""):
        site.between.fails_with(answer)
        if not answer:
            site.between.password = "another"  # noqa: S105 - so it is refused
        before = lines(site)
        async with asyncio.timeout(TOLD_WITHIN_S):
            while not all(now > then for now, then in zip(lines(site), before, strict=True)):  # noqa: ASYNC110 - two files
                await asyncio.sleep(0.1)


def lines(site: SecretsSite) -> tuple[int, int]:
    return len(site.scheduler.lines()), len(site.plugin.lines())


async def tokens_end(site: SecretsSite) -> None:
    """With the accounts that they were made for, while nobody is connected."""
    for file in ("rbac.yaml", "device-plugin-rbac.yaml"):
        (account,) = (one for one in manifests.documents(file) if one["kind"] == "ServiceAccount")
        await manifests.remove(site.admin, account)
    await site.refused()
    site.between.password = secret("proxy")
    site.between.open()
    await site.scheduler.said("api.unauthorized", within_s=TOLD_WITHIN_S)
    await site.plugin.said("watch.failed", status=HTTPStatus.UNAUTHORIZED, within_s=TOLD_WITHIN_S)


async def test_nothing_that_is_said_holds_a_secret(node: LocalNode, tmp_path: Path) -> None:
    async with secrets_site(node, tmp_path) as site:
        await pods_come(site)
        await a_binding_is_refused(site)
        await an_object_cannot_be_read(site)
        await asyncio.gather(one_gets_past_the_scheduler(site), commands_are_run(site))
        await a_card_fails(site)
        await site.look()
        files = {path: stat.S_IMODE(path.stat().st_mode) for path in site.files()}
        state = stat.S_IMODE(site.state.stat().st_mode)
        await the_proxy_fails(site)
        await tokens_end(site)
        secrets = site.secrets
    site.read_files()

    print({where: len(text) for where, text in site.said.items()})  # noqa: T201 - the figures
    assert hits(site.said, secrets) == []
    assert all(site.said.values()), [where for where, text in site.said.items() if not text]
    assert state == 0o700
    assert {mode & 0o022 for mode in files.values()} == {0}
