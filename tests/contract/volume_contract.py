"""What is written into claims and volumes before a pod is bound, and how the two are watched."""

import pytest

from scheduler.kube.port import CLAIMS, VOLUMES, ApiConflict, ApiNotFound, Changed, NodeForClaim, VolumeForClaim
from tests.contract.following import following
from tests.contract.under_test import ClusterUnderTest, claim_manifest, volume_manifest

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


async def volume_for_claim(under_test: ClusterUnderTest, *, kept: bool = False) -> VolumeForClaim:
    """A claim and a volume are made; what gives the one to the other."""
    name, of = f"{under_test.namespace}-pv", under_test.namespace
    claim = await under_test.operator.create_claim(claim_manifest(of, "data"))
    made = await under_test.operator.create_volume(volume_manifest(name))
    return VolumeForClaim(name, made.metadata.resource_version, of, "data", claim.metadata.uid, kept=kept)


class VolumeContract:
    """What `port.Cluster.bind_volume` and `select_node` do."""

    @pytest.mark.parametrize("kept", [False, True])
    async def test_a_volume_gets_the_claim_and_its_new_version(
        self, under_test: ClusterUnderTest, *, kept: bool
    ) -> None:
        wanted = await volume_for_claim(under_test, kept=kept)
        async with following(under_test.cluster, VOLUMES, under_test.namespace) as watch:
            await watch.listed()
            version = await under_test.cluster.bind_volume(wanted)
            event = await watch.next()

        assert isinstance(event, Changed)
        found = event.object
        assert found.metadata.resource_version == version != wanted.version
        reference = found.spec.claim_ref
        assert reference is not None
        assert (reference.namespace, reference.name) == (wanted.claim_namespace, wanted.claim)
        assert reference.uid == wanted.claim_uid
        assert (BOUND_BY_CONTROLLER in (found.metadata.annotations or {})) is not kept
        assert found.spec.capacity == {"storage": "1Gi"}

    async def test_a_volume_that_has_changed_meanwhile_is_a_conflict(self, under_test: ClusterUnderTest) -> None:
        wanted = await volume_for_claim(under_test)
        await under_test.cluster.bind_volume(wanted)
        with pytest.raises(ApiConflict):
            await under_test.cluster.bind_volume(wanted)

    async def test_a_claim_gets_the_node_and_its_new_version(self, under_test: ClusterUnderTest) -> None:
        made = await under_test.operator.create_claim(claim_manifest(under_test.namespace, "data"))
        wanted = NodeForClaim(under_test.namespace, "data", made.metadata.resource_version, "a")
        async with following(under_test.cluster, CLAIMS, under_test.namespace) as watch:
            await watch.listed()
            version = await under_test.cluster.select_node(wanted)
            event = await watch.next()

        assert isinstance(event, Changed)
        assert event.object.metadata.resource_version == version
        assert (event.object.metadata.annotations or {})[SELECTED_NODE] == "a"
        assert event.object.spec == made.spec
        with pytest.raises(ApiConflict):
            await under_test.cluster.select_node(wanted)

    async def test_what_is_gone_is_not_found(self, under_test: ClusterUnderTest) -> None:
        with pytest.raises(ApiNotFound):
            await under_test.cluster.select_node(NodeForClaim(under_test.namespace, "nothing", "1", "a"))
        with pytest.raises(ApiNotFound):
            await under_test.cluster.bind_volume(
                VolumeForClaim(f"{under_test.namespace}-none", "1", under_test.namespace, "data", "u", kept=False)
            )
