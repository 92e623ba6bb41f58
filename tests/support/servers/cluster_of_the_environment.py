"""Queries the environment's cluster for its version, like a program without --kubeconfig.

Not collected itself: test_isolation.py runs it, with and without the guard, against its own cluster.
"""

import os

from scheduler.kube.rest import version
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.transport import Transport


async def test_the_cluster_of_the_environment_answers() -> None:
    transport = Transport(await connect(os.environ), connections=1)
    try:
        assert (await version.read(transport, 10.0)).version == "v0.0.0-somebody-elses"
    finally:
        await transport.close()
