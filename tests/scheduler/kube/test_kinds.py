"""The kinds that are asked of the API server have the API server's names, whatever our classes are called."""

import pytest

from scheduler.kube import port


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (port.PODS, "PodList"),
        (port.FAILED_PODS, "PodList"),
        (port.NODES, "NodeList"),
        (port.NAMESPACES, "NamespaceList"),
        (port.DISRUPTION_BUDGETS, "PodDisruptionBudgetList"),
        (port.CONFIG_MAPS, "ConfigMapList"),
        (port.CLAIMS, "PersistentVolumeClaimList"),
        (port.VOLUMES, "PersistentVolumeList"),
        (port.STORAGE_CLASSES, "StorageClassList"),
        (port.CSI_NODES, "CSINodeList"),
        (port.CSI_DRIVERS, "CSIDriverList"),
        (port.CAPACITIES, "CSIStorageCapacityList"),
        (port.ATTACHMENTS, "VolumeAttachmentList"),
        (port.SERVICES, "ServiceList"),
        (port.REPLICATION_CONTROLLERS, "ReplicationControllerList"),
        (port.REPLICA_SETS, "ReplicaSetList"),
        (port.STATEFUL_SETS, "StatefulSetList"),
        (port.PRIORITY_CLASSES, "PriorityClassList"),
    ],
)
def test_a_list_has_the_api_servers_name(kind: port.Kind[port.T], named: str) -> None:
    assert kind.list_kind == named
