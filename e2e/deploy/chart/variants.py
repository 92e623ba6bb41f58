"""Values that an operator may choose, one set a name: each is rendered, checked and shown to a real API server."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from e2e.deploy.chart.helm import CHART
from tests.support.repository import ROOT

_CONFIG: Final = {
    "profiles": [
        {"schedulerName": "shared-gpus", "additionalSchedulerNames": ["gpushare"]},
        {"schedulerName": "training"},
    ],
    "memoryUnitMiB": 256,
    "resources": {"gpuMem": "example.com/gpu-mem"},
    "leaderElection": {"resourceName": "shared-gpus", "resourceNamespace": "default"},
    "listen": ":20261",
}
_PLACE: Final = {
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "podAnnotations": {"example.com/team": "gpu"},
    "priorityClassName": "",
    "podLabels": {"example.com/cost-center": "4711"},
    "extraEnv": [
        {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"},
        {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ],
    "serviceAccountAnnotations": {"example.com/role": "gpu"},
}
# What a rule says that is no default: every kind of change.
CHANGED_ALERTS: Final[Mapping[str, Any]] = {
    "enabled": True,
    "labels": {"release": "prometheus"},
    "runbooks": "https://runbooks.example/gpushare/",
    "alertLabels": {"team": "gpu"},
    "chargeBack": False,
    "alerts": {
        "GpusharePodsWaitLong": {
            "severity": "info",
            "for": "1h",
            "thresholds": {"waitSeconds": 14_400_000},
            "labels": {"team": "ml"},
        },
        "GpushareWatchStale": {"thresholds": {"failingSeconds": 90.5}},
        "GpushareLoopHeld": {"enabled": False},
    },
}
NO_PREEMPTION: Final = {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}

VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "another configuration": {"scheduler": {"config": _CONFIG}},
    "a device plugin with a configuration": {
        "devicePlugin": {"config": {"monitor": "evict", "markAssigned": True, "listen": ":20262"}}
        | {"mayEvict": True, "mayMarkAssigned": True}
    },
    "labels of Node Feature Discovery": {"devicePlugin": {"selectNodesBy": "nfd-labels"}},
    "other nodes": {"scheduler": _PLACE, "devicePlugin": {**_PLACE, "selectNodesBy": "nothing"}},
    "the NVIDIA runtime class": {"devicePlugin": {"runtimeClassName": "nvidia"}},
    "an uninstall": {"devicePlugin": {"uninstall": True}},
    "MPS": {"devicePlugin": {"config": {"isolation": "mps"}}},
    "MPS with daemons of one's own": {
        "devicePlugin": {
            "config": {"isolation": "mps", "mps": {"daemons": "external", "directory": "/var/run/mps"}}
            | {"stateDir": "/var/lib/gpushare"}
        }
    },
    "limits by the driver, otherwise MPS": {"devicePlugin": {"config": {"isolationFallback": "mps"}}},
    "limits by the driver alone": {
        "devicePlugin": {"config": {"isolation": "driver", "isolationFallback": "mps", "enforcement": "required"}}
    },
    "limits by the driver, otherwise a description": {
        "devicePlugin": {
            "config": {"isolation": "auto"},
            "isolationMechanism": {"environment": {"MY_LIMIT_MIB": "{mib}"}},
        }
    },
    "HAMi-core": {
        "devicePlugin": {"config": {"isolation": "hami-core", "hamiCore": {"library": "/usr/local/vgpu/libvgpu.so"}}}
    },
    "a description of isolation": {
        "devicePlugin": {
            "isolationMechanism": {"environment": {"MY_LIMIT_MIB": "{mib}"}, "preparation": "mps", "hostIPC": True}
        }
    },
    "an image by its digest": {
        "image": {"repository": "registry.example/gpushare", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"}
        | {"pullSecrets": [{"name": "registry"}]}
    },
    "other names": {"names": {"scheduler": "shared-gpus", "devicePlugin": "shared-gpus-node"}},
    "while migrating": {"admissionPolicies": {"legacyAccounts": True}},
    "every policy": {
        "admissionPolicies": {
            "schedulerName": {"action": "Warn"},
            "visibleDevices": {"enabled": True},
            "unknownKeys": {"enabled": True, "action": "Audit"},
            "volumes": {"enabled": True},
        }
    },
    "no policies": {"admissionPolicies": {"enabled": False}},
    "as little as possible": {
        "scheduler": {"replicas": 1, "podDisruptionBudget": {"enabled": False}},
        "devicePlugin": {"enabled": False},
        "flowSchema": {"enabled": False},
        "admissionPolicies": {"enabled": False},
    },
    "a default scheduler name": {"defaultSchedulerName": {"enabled": True}},
    "the web page": {"page": {"enabled": True}},
    "the web page behind a proxy": {
        "page": {"enabled": True, "extraContainers": [{"name": "proxy", "image": "registry.example/proxy:1"}]},
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
    },
    "another kubelet": {
        "devicePlugin": {
            "config": {
                "kubelet": {
                    "devicePluginDir": "/var/lib/k0s/kubelet/device-plugins",
                    "podResourcesSocket": "/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
                },
                "cdiDir": "/etc/cdi",
                "cdiSpecDirs": ["/etc/cdi", "/opt/cdi.d"],
            }
        }
    },
    "volume mounts for the driver": {"devicePlugin": {"driverAccess": "volume-mounts"}},
    "a privileged device plugin": {"devicePlugin": {"driverAccess": "privileged", "runtimeClassName": "nvidia"}},
    "the root of a driver's container": {
        "devicePlugin": {"driverAccess": "driver-root", "driverRoot": "/run/nvidia/driver"}
    },
    "the driver of the host": {
        "devicePlugin": {
            "driverAccess": "driver-root",
            "driverRoot": "/",
            "config": {"isolation": "mps", "mps": {"daemons": "external"}},
        }
    },
    "the GPU Operator's label": {"devicePlugin": {"operatorLabel": "nvidia.com/gpu.deploy.client"}},
    "SELinux": {"devicePlugin": {"seLinuxOptions": {"type": "container_device_plugin_t", "level": "s0"}}},
    "OpenShift": {"openShift": {"enabled": True}},
    "OpenShift with a privileged device plugin": {
        "openShift": {"enabled": True},
        "devicePlugin": {"driverAccess": "privileged"},
    },
    "CDI specs in many directories": {
        "devicePlugin": {
            "config": {
                "cdiSpecDirs": [
                    "/etc/cdi",
                    "/etc/CDI",
                    "/etc.cdi",
                    "/run/nvidia_cdi",
                    f"/opt/{'long' * 20}/a",
                    "/var/run/cdi",
                ]
            }
        }
    },
    "no preemption": {"scheduler": {"config": {"profiles": [{"plugins": NO_PREEMPTION}]}}},
    "a company": yaml.safe_load((ROOT / "deploy" / "values-company.yaml").read_text(encoding="utf-8")),
    "changed alerts": {"prometheusRule": CHANGED_ALERTS},
    "pod monitors": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "service monitors": {"serviceMonitor": {"enabled": True, "interval": "1m"}},
    **({"alerts": {"prometheusRule": {"enabled": True}}} if (CHART / "files" / "alerts.yaml").exists() else {}),
    **({"a dashboard": {"dashboard": {"enabled": True}}} if (CHART / "files" / "dashboard.json").exists() else {}),
}


def parameters() -> list[Any]:
    """Each variant's values, with its name as the id."""
    return [pytest.param(values, id=name) for name, values in VARIANTS.items()]
