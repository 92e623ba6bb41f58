"""Asks the cluster that the environment names for its version, as a program without --kubeconfig would.

Not collected by itself: test_isolation.py runs it, with and without the guard, against a cluster of its own.
"""

from kubernetes.aio import client, config


async def test_the_cluster_of_the_environment_answers() -> None:
    await config.load_kube_config()
    async with client.ApiClient() as api:
        version = await client.VersionApi(api).get_code()
    assert version.git_version == "v0.0.0-somebody-elses"
