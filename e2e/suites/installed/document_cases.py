"""Of the commands in the documents: which are not typed, and why; and what those say that say more than 'done'.

A command is named by its document and how it begins; "" begins all of a document.
"""

from collections.abc import Mapping
from typing import Final

_CLUSTER: Final = "e2e/suites/harness/test_local_cluster.py runs it"
_HELM: Final = "helm from a chart: e2e/deploy/chart/test_install.py runs it"
_DOCKER: Final = "docker: e2e/deploy/image/test_images.py builds the image without"
_CARD: Final = "a real card"
_METRICS: Final = "the metrics server, which this cluster lacks"
JQ: Final = "jq, which this machine lacks"
_SET_UP: Final = "set-up of this clone, or all of its tests"
_LEGACY: Final = "the legacy extender: e2e/suites/migration/test_migration.py and test_migration_of_a_node.py"
_REMOVAL: Final = "it takes away what the other documents need: e2e/deploy/chart/test_mishaps.py types it"
_WAY_BACK: Final = "the way back to the legacy extender: e2e/deploy/operations/test_way_back.py types it"
_UNINSTALL: Final = "it ends the device plugin: e2e/suites/node/test_uninstall.py types it"
_ONE_NODE: Final = (
    "it ends the device plugin: e2e/suites/node/test_uninstall.py and e2e/deploy/chart/test_mishaps.py type it"
)
_WHEEL: Final = "tests/repository/test_wheel.py runs it"
_OPERATIONS: Final = "it replaces the pods that other documents name: e2e/deploy/operations/test_operations.py types it"
DRIVER: Final = "it releases all cards, and replaces the pod that other documents name: a test of its own types it"
_BY_HAND: Final = "a device plugin that is started by hand: e2e/programs/plugin_process.py starts one"

NOT_TYPED: Final[Mapping[str, Mapping[str, str]]] = {
    "CONTRIBUTING.md": {
        "E2E_PROVIDER=existing": _CLUSTER,
        "E2E_PROVIDER=kind": "kind, which nobody has run yet: docs/evidence/tested-on.md",
    },
    "README.md": {"make demo": _SET_UP, "make cluster": _CLUSTER},
    "deploy/README.md": {
        "docker": _DOCKER,
        "(cd deploy/manifests && kustomize": "kustomize, and it changes a file of this clone",
        "helm install": _HELM,
        "helm upgrade": _REMOVAL,
        "helm uninstall": _REMOVAL,
        "kubectl -n kube-system rollout status daemonset": _UNINSTALL,
        "kubectl -n kube-system patch daemonset": _UNINSTALL,
        "kubectl -n kube-system delete lease": _REMOVAL,
        "kubectl label nodes --all gpushare-": _REMOVAL,
        "kubectl cordon NODE": _ONE_NODE,
        "kubectl get pods -A --field-selector spec.nodeName=NODE": _ONE_NODE,
        "kubectl label node NODE gpushare=": _ONE_NODE,
        "kubectl -n kube-system wait pod": _ONE_NODE,
        "kubectl -n kube-system get daemonset": _ONE_NODE,
        "kubectl -n kube-system logs gpushare-uninstall": _ONE_NODE,
        "kubectl -n kube-system delete pod gpushare-uninstall": _ONE_NODE,
        "kubectl wait node NODE": _ONE_NODE,
        "kubectl uncordon NODE": _ONE_NODE,
        "kubectl get deployments,statefulsets,daemonsets,cronjobs": JQ,
        "kubectl -n NAMESPACE patch": "a workload of the reader's",
    },
    "docs/defragment.md": {
        "kubectl gpushare defragment apply -f pod.yaml -n NAMESPACE": "e2e/suites/tools/test_commands.py evicts",
    },
    "docs/first-gpu-node.md": {"make test-gpu": _CARD},
    "docs/get-kubectl-gpushare.md": {"pip install": _WHEEL, "export PATH": _SET_UP},
    "docs/isolation.md": {
        "export CUDA_": _CARD,
        "mkdir -p": _CARD,
        "exec nvidia-cuda-mps-control": _CARD,
        "helm upgrade": _HELM,
    },
    "docs/local-cluster.md": {
        "make cluster": _CLUSTER,
        "export": "the line that make cluster prints",
        "gpushare-device-plugin fault": _CLUSTER,
    },
    "docs/migrate.md": {
        "cat >": "a file for helm",
        "sed": "a file for helm: e2e/deploy/operations/test_way_back.py types it",
        "helm": _HELM,
        "kubectl -n kube-system patch daemonset gpushare-device-plugin-ds": _LEGACY,
        "kubectl -n kube-system rollout status daemonset gpushare-device-plugin-ds": _LEGACY,
        "kubectl -n kube-system delete": _LEGACY,
        "kubectl delete clusterrole": _LEGACY,
        "kubectl gpushare adopt -o json | jq": JQ,
        "kubectl -n NAMESPACE delete pod NAME": "a pod of the reader's",
        "kubectl -n kube-system get -o json": _WAY_BACK,
        "kubectl get deployments,statefulsets,daemonsets,cronjobs": JQ,
    },
    "docs/migrate-back.md": {
        "helm": _HELM,
        "kubectl get pods -A -o json | jq": JQ,
        "kubectl get deployments,statefulsets,daemonsets,cronjobs": JQ,
        "kubectl -n NAMESPACE patch": _WAY_BACK,
        "kubectl -n NAMESPACE delete pod NAME": "a pod of the reader's",
        "kubectl label nodes -l gpushare=true": _WAY_BACK,
        "kubectl create -f legacy.json": _WAY_BACK,
    },
    "docs/develop/device-plugin.md": {"gpushare-device-plugin": _BY_HAND},
    "docs/node-reference.md": {"gpushare-device-plugin uninstall": _UNINSTALL},
    "docs/nodes-and-cards.md": {
        "helm": _HELM,
        "kubectl drain": _OPERATIONS,
        "kubectl -n kube-system delete pod PLUGIN_POD": DRIVER,
        "kubectl -n kube-system exec PLUGIN_POD -- /opt/gpushare/bin/gpushare-device-plugin release": DRIVER,
        "kubectl -n kube-system exec NEW_PLUGIN_POD": DRIVER,
    },
    "docs/operations.md": {
        "helm": _OPERATIONS,
        "kubectl -n kube-system rollout restart": _OPERATIONS,
        "kubectl -n kube-system rollout undo": _OPERATIONS,
        "kubectl -n kube-system scale": _OPERATIONS,
    },
    "docs/evidence/packing.md": {"": "a trace that is not part of this repository: tests/packing makes one up"},
    "docs/page.md": {"make demo": _SET_UP},
    "docs/runbooks/README.md": {"helm": _HELM},
    "docs/runbooks/GpushareLoopHeld.md": {"kubectl -n kube-system top": _METRICS, "kubectl top": _METRICS},
    "docs/simulate.md": {
        "gpushare-scheduler simulate nodes.yaml": (
            "files of the reader's; tests/scheduler/tools/simulate/test_simulate.py"
        ),
    },
    "docs/evidence/tested-on.md": {"": _CARD},
    "docs/develop/write-a-rule.md": {"gpushare-scheduler simulate": _WHEEL},
    "docs/troubleshooting.md": {
        "kubectl patch --local -f FILE": "a file of the reader's",
    },
}

# Whose pod `POD` is in kube-system, where it is not the device plugin's.
OF_THE_SCHEDULER: Final = frozenset(
    {"docs/runbooks/GpushareSchedulerNotReady.md", "docs/runbooks/GpushareWatchStale.md"}
)

# Exit code 1, and words of what is said then.
ENDS_WITH_1: Final[Mapping[str, Mapping[str, str]]] = {}

# Words of what it says. What has no end of its own needs some.
SAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "deploy/README.md": {"kubectl -n kube-system logs": "[pod/gpushare-scheduler-"},
    "docs/explain.md": {
        "gpushare-scheduler explain": "It requests 100 GiB on one card.",
        "gpushare-scheduler what-if": "copies of default/first-pod would fit now",
    },
    "docs/defragment.md": {"kubectl gpushare defragment plan": "fits after 1 move"},
    "docs/local-cluster.md": {"kubectl wait": "ALIYUN_COM_GPU_MEM_CONTAINER=3", "kubectl inspect": "first-pod"},
    "docs/inspect.md": {"curl": '"name":"n1"'},
    "docs/page.md": {
        "gpushare-scheduler demo": "http://127.0.0.1:",
        "kubectl gpushare page": "The page is at http://127.0.0.1:",
        "kubectl -n kube-system port-forward": "Forwarding from 127.0.0.1:",
    },
    "docs/simulate.md": {"gpushare-scheduler simulate": "Pods placed: 12, ended since: 1, waiting: 1."},
    "docs/troubleshooting.md": {
        "kubectl gpushare doctor": "holds the Lease kube-system/gpushare-scheduler",
        "kubectl -n kube-system exec deploy/gpushare-scheduler": "wants 100",
        "kubectl -n NAMESPACE exec USER_POD -- env": "GPU-",
        "kubectl -n NAMESPACE get pod USER_POD -o jsonpath='{.spec.nodeName}": "n1",
    },
}

# Of the objects that a document shows: each pod that comes of them, by its name or how it begins, and why it waits; ""
# where it gets a node. Of a StatefulSet the first alone: its image is nowhere to be had, so that it never runs.
DECIDED: Final[Mapping[str, Mapping[str, str]]] = {
    "README.md": {"small-model": ""},
    "docs/quotas.md": {"team-a-train": "didn't match Pod's node affinity/selector"},
    "docs/share.md": {"llm": ""},
    "docs/user-guide.md": {
        "binpack-0": "",
        "train-7": "",
        "train": "didn't find available persistent volumes to bind",
        "web-": "didn't match pod topology spread constraints (missing required label)",
    },
}

# Files that are neither objects of Kubernetes nor what `simulate` reads alone.
NOT_APPLIED: Final[Mapping[str, str]] = {
    "docs/configuration-node.md": "tests/repository/documents/test_documents.py reads it",
    "deploy/README.md": "values of the chart",
    "docs/isolation.md": "some lines of a configuration, for a real card",
    "docs/isolation-mechanism.md": "a description of isolation, for a real card",
    "docs/migrate-back.md": "some lines of a pod",
    "docs/working-with.md": "kinds of other projects: e2e/deploy/other_projects/test_working_with.py creates them",
    "docs/develop/write-a-rule.md": _WHEEL,
}

# Leaves the node as it was.
AFTERWARDS: Final[Mapping[str, str]] = {
    "docs/migrate-back.md": "kubectl taint node n1 gpushare-migrated-",
    "docs/nodes-and-cards.md": "kubectl gpushare uncordon n1",
}
