"""The API server is away from a real node: the device plugin's probe and metrics say since when."""

import re

from e2e.support.shared_node import SharedNode


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
