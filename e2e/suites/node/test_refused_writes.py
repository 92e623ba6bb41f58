"""The API server refuses what the plugin writes, or is away: who looks at the node learns it, and no container does."""

import copy
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

import pytest

from deviceplugin.report.status import as_text
from deviceplugin.report.status_page import ask_status
from e2e.control_plane.admin import Admin, Json
from e2e.programs import manifests
from e2e.support.shared_node import SharedNode, all_settled, healths, lives, pods, shared_pod, sharing

_RBAC: Final = manifests.documents("device-plugin-rbac.yaml")
(_ROLE,) = (document for document in _RBAC if document["kind"] == "ClusterRole")
_WITHIN_S: Final = 60.0


def reading_alone() -> Json:
    """The plugin's role without what it may write on nodes."""
    role = copy.deepcopy(_ROLE)
    for rule in role["rules"]:
        if rule["resources"] in (["nodes"], ["nodes/status"]):
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "patch"]
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    return role


@pytest.fixture
async def refused(shared: SharedNode, on_node: Admin) -> AsyncIterator[None]:
    """The plugin may write nothing on nodes. At the end it may again, and its node is as it should be."""
    await manifests.apply(on_node, reading_alone())
    yield
    await manifests.apply(on_node, _ROLE)
    await shared.forget_health()
    await shared.node_seen(on_node, lambda node: healths(node) == ["healthy"] * 3)


@pytest.mark.usefixtures("refused")
async def test_a_refused_write_is_named_by_status_readyz_and_log_until_it_succeeds(
    shared: SharedNode, on_node: Admin
) -> None:
    refusal = 'cannot patch resource "nodes" in API group "" at the cluster scope'
    async with pods(on_node, [shared_pod("there", [sharing(1)])]) as created:
        (before,) = await all_settled(on_node, created)
        await shared.plugin.happens(card=0, xid=79)

        said = await shared.plugin.readyz_until(lambda text: "the node object cannot be written: 403" in text)
        logged = await shared.plugin.said("announce.failed", status=HTTPStatus.FORBIDDEN)
        shown = as_text(await ask_status(f"127.0.0.1:{shared.plugin.port}"))
        assert refusal in said
        assert refusal in logged["reason"]
        assert "The node object is NOT up to date" in shown
        assert f"Problem: {said.strip()}" in shown
        assert healths(await shared.read(on_node))[0] == "healthy"

        await manifests.apply(on_node, _ROLE)
        await shared.node_seen(on_node, lambda node: healths(node)[0] == "unhealthy xid-79", within_s=_WITHIN_S)
        await shared.plugin.ready()
        shown = as_text(await ask_status(f"127.0.0.1:{shared.plugin.port}"))
        assert "cannot be written" not in shown
        (after,) = await all_settled(on_node, created)
        assert lives(after) == lives(before)


async def test_a_device_plugin_says_since_when_the_server_is_away(shared: SharedNode) -> None:
    cluster = shared.node.cluster
    async with shared.instead(notReadyAfter="3s") as plugin:
        await plugin.ready()
        with cluster.cut_off():
            said = await plugin.readyz_until(lambda said: "has not served nodes, pods for" in said)
            series = await plugin.metrics()
        await plugin.readyz_until(lambda said: said == "ok\n")

    assert re.search(r"the API server has not served nodes, pods for \d+ s: connection failed", said)
    assert all(series["gpushare_device_plugin_api_failing_seconds", kind] >= 3 for kind in ("nodes", "pods"))
