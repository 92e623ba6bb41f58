"""Faults of a node, the steps of docs/first-gpu-node.md that name each, and its commands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from e2e.support import planted_faults as planted
from e2e.support.planted_faults import Plant
from tests.support.nvidia.world import DRIVER

CARDS: Final = 3
READYZ: Final = "/readyz"
GENERATE: Final = "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the steps that name it.

    says: words by step: a check of `doctor`, READYZ, or the reason of an Event. document: words of the document's row.
    working: cards that take pods meanwhile. running: it happens while the plugin runs, which notices.
    """

    plant: Plant
    says: Mapping[str, str]
    document: str
    working: int = CARDS
    running: bool = False


def of_cuda(code: str, words: str, document: str) -> Fault:
    """CuInit answers so on the first card."""
    says = {"cuda": words, "cards": f"cuda-{code}", "GPUSuspect": f"cuda-{code}"}
    return Fault(planted.world_says(f"fault cuInit 0 {code}"), says, document, working=CARDS - 1)


def of_the_spec(plant: Plant, words: str, document: str) -> Fault:
    """No container can get a card."""
    return Fault(plant, {"libcuda": words, READYZ: words, "GPUNotReady": words}, document, working=0)


_NO_UVM: Final = "does not inject /dev/nvidia-uvm: run nvidia-modprobe -u -c=0"
_MIG: Final = ("card 0 mig 1", "fault nvmlDeviceGetMemoryInfo 0 4", "fault nvmlDeviceGetMemoryInfo_v2 0 4")
_PERSISTENCE: Final = tuple(
    line for number in range(CARDS) for line in (f"card {number} persistence 0", f"initialise {number} 1")
)
FAULTS: Final[Mapping[str, Fault]] = {
    "a management spec without nvidia-uvm": of_the_spec(
        planted.management_without_uvm, _NO_UVM, "grep -c /dev/nvidia-uvm"
    ),
    "a spec without nvidia-uvm": of_the_spec(planted.spec_without_uvm, _NO_UVM, "grep -c /dev/nvidia-uvm"),
    "a spec with nodes that are gone": of_the_spec(
        planted.nodes_gone("nvidia-modeset"), "names device nodes that do not exist: /dev/nvidia-modeset", GENERATE
    ),
    "a spec of another driver": of_the_spec(
        planted.spec_edited(planted.of_an_earlier_driver),
        f"was written for driver {planted.EARLIER}; the driver is now {DRIVER}",
        "contain the driver's version",
    ),
    "a late spec": of_the_spec(planted.no_spec, "there is no CDI spec of kind nvidia.com/gpu", "within 15 s"),
    "a bad spec above a good one": Fault(planted.worse_spec_of_higher_priority, {}, GENERATE),
    "one card of several without a spec": Fault(
        planted.spec_without_the_last_card,
        {
            "libcuda": "has no device node for the card; expected /dev/nvidia2",
            "cards": "no-way-in",
            "GPUSuspect": "nvidia2",
        },
        "`no-way-in`",
        working=CARDS - 1,
    ),
    "nvidia-uvm with the number of an earlier boot": Fault(
        planted.uvm_of_an_earlier_boot,
        {
            "cuda": "cuInit returned 999: /dev/nvidia-uvm is missing or has the major number of an earlier boot",
            READYZ: "CUDA does not start on any card",
            "GPUNotReady": "nvidia-modprobe -u -c=0",
        },
        "`/dev/nvidia-uvm` is missing, or has the device number of an earlier boot",
        working=0,
    ),
    "cuInit 100": of_cuda("100", "cuInit returned 100: CUDA finds no card", "a device node of the card is missing"),
    "cuInit 802": of_cuda("802", "cuInit returned 802: the NVSwitch fabric is not ready", "fabric is not ready"),
    "cuInit 803": of_cuda("803", "libcuda and the kernel module have different versions", "have different versions"),
    "cuInit 999": of_cuda("999", "cuInit returned 999: /dev/nvidia-uvm is missing", "`nvidia-modprobe -u -c=0`"),
    "cuInit that hangs": Fault(
        planted.world_says("hang cuInit 0"),
        {"cuda": "cuInit did not return within 30 s", "cards": "cuda-silent", "GPUSuspect": "cuda-silent"},
        "`cuInit` hangs",
        working=CARDS - 1,
    ),
    "a fabric that is not ready": Fault(
        planted.world_says("card 0 fabric_state 2"),
        {"cuda": "the NVSwitch fabric is not ready", "cards": "cuda-802", "GPUSuspect": "nvidia-fabricmanager"},
        "`systemctl status nvidia-fabricmanager`",
        working=CARDS - 1,
    ),
    "a card that is split": Fault(
        planted.world_says(*_MIG),
        {"cards": "in MIG mode, only their instances are shared: card 0"},
        "in MIG mode, only their instances are shared",
        working=CARDS - 1,
    ),
    "optional facts that fail": Fault(
        planted.world_says("fault nvmlDeviceGetName 0 999"),
        {"cards": "the driver does not report card 0"},
        "the driver does not report",
    ),
    "cards that start slowly": Fault(
        planted.world_says(*_PERSISTENCE),
        {"persistence": "starting a program may take seconds per card"},
        "systemctl enable --now nvidia-persistenced",
    ),
    "no NVML": Fault(
        planted.library_as("libnvidia-ml.so", None),
        {"driver": "NVML cannot be loaded: libnvidia-ml.so.1: cannot open shared object file"},
        "`NVML cannot be loaded: libnvidia-ml.so.1: cannot open …`",
        working=0,
    ),
    "a damaged NVML": Fault(
        planted.library_as("libnvidia-ml.so", "no library"),
        {"driver": "file too short: the library is damaged"},
        "`… the library is damaged`",
        working=0,
    ),
    "a driver that was updated": Fault(
        planted.driver_updated,
        {"driver": f"the plugin runs with driver {DRIVER}, but the node has {planted.EARLIER}"},
        "`the plugin runs with driver …`",
        running=True,
    ),
    "a card that is lost": Fault(
        planted.world_says("fault * 0 15"),
        {"cards": "fallen off the bus: reboot the machine", "GPUSuspect": "failing"},
        "`xid-79`, `lost`",
        working=CARDS - 1,
        running=True,
    ),
}
BY_DAY: Final = frozenset(
    {
        "a management spec without nvidia-uvm",
        "a late spec",
        "one card of several without a spec",
        "nvidia-uvm with the number of an earlier boot",
        "cuInit 100",
        "no NVML",
        "a driver that was updated",
    }
)
_CHART: Final = "e2e/deploy/chart"
# Faults that no node of ours can have -> file and test that hold each; for the cancellation a rule of the linter.
HELD_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "a driver in a container whose nodes lie elsewhere on the host": {
        "e2e/suites/node/test_nvidia_matrix.py": "test_containers_find_their_own_cards_also_after_a_reboot"
    },
    "a restart of systemd that takes device nodes away": {
        "tests/deviceplugin/allocation/test_environment_allocator.py": "test_the_kubelet_learns_of_the_device_nodes"
    },
    "a toolkit that gives the plugin no card": {
        f"{_CHART}/test_driver_access_on_a_node.py": "test_a_container_starts_and_has_what_the_way_needs"
    },
    "a plugin without libcuda": {
        "tests/deviceplugin/driver/test_cuda.py": "test_without_libcuda_the_card_is_no_worse",
    },
    "SELinux": {f"{_CHART}/test_values.py": "test_the_pods_are_secured_whatever_the_values"},
    "a card that is lost while the plugin's container is made": {
        f"{_CHART}/test_driver_access.py": (
            "test_a_drivers_root_is_mounted_where_the_plugin_looks_and_the_runtime_is_asked_for_no_card"
        ),
        "tests/deviceplugin/driver/test_nvml_matrix.py": "test_a_call_that_fails_for_one_card_changes_that_card_alone",
    },
    "one unit less than the legacy plugin counts": {
        "tests/scheduler/tools/adoption/test_adoption.py": (
            "test_a_pod_that_requests_all_of_a_card_is_a_warning_until_our_device_plugin_counts_the_card"
        ),
    },
    "a read-only /etc": {
        f"{_CHART}/test_driver_access_on_a_node.py": "test_a_directory_that_the_node_does_not_have_is_named_in_an_event"
    },
    "an image without a library that NVML needs": {
        "tests/repository/deployment/test_image_root.py": "test_an_image_without_one_of_them_is_not_made",
        "tests/deviceplugin/driver/test_driver_root.py": (
            "test_a_library_that_cannot_be_loaded_is_reported_in_the_loaders_words"
        ),
    },
    "a card that comes while the plugin runs": {
        "tests/deviceplugin/driver/test_new_cards.py": "test_a_card_that_comes_is_found_at_the_next_count"
    },
    "a cancellation with a wake-up": {"pyproject.toml": "asyncio.wait_for"},
    "volumes for directories of CDI specs": {
        f"{_CHART}/test_install.py": "test_the_api_server_accepts_every_object_of_every_variant_to_the_letter"
    },
}

UNITS_OF_ALL: Final = str(CARDS * 79)


@dataclass(frozen=True, slots=True)
class Typed:
    """where: "kubectl" for a shell of the operator, "node" for one of the node, "pod" for one of a pod's container.

    says: words of its output.
    """

    where: str
    says: str = ""


# In the order of the document, without what the table below has.
TYPED: Final[Mapping[str, Typed]] = {
    "nvidia-ctk --version": Typed("node", "NVIDIA Container Toolkit CLI"),
    "kubectl get runtimeclass": Typed("kubectl", "nvidia"),
    "ls /var/run/cdi /etc/cdi": Typed("node", "nvidia.yaml"),
    "grep -c libcuda.so /var/run/cdi/nvidia.yaml": Typed("node"),
    "grep -c /dev/nvidia-uvm /var/run/cdi/nvidia.yaml": Typed("node"),
    "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml": Typed("node"),
    "ls -l /dev/nvidia*": Typed("node", "/dev/nvidia-uvm"),
    "kubectl exec USER_POD -- sh -c 'ls /dev/nvidia[0-9]*'": Typed("pod", "/dev/nvidia"),
    "kubectl label node NODE gpushare=true": Typed("kubectl", "labeled"),
    "kubectl get nodes -l gpushare=true": Typed("kubectl", "Ready"),
    "kubectl get node NODE -o jsonpath='{.status.allocatable.aliyun\\.com/gpu-mem}'": Typed("kubectl", UNITS_OF_ALL),
    "kubectl inspect gpushare NODE": Typed("kubectl", "GPU2"),
    # This node has the policies of the allocation alone.
    "kubectl get validatingadmissionpolicybindings": Typed("kubectl", "gpushare-allocation"),
    "kubectl get events -A --field-selector reason=GPUUnscheduled": Typed("kubectl", "No resources found"),
}
_NVIDIAS: Final = "a program of NVIDIA's driver"
_LOG: Final = "the kernel's log, which has nothing of a stand-in"
_SERVICE: Final = "a service of systemd, which this node lacks"
_CHECK: Final = "the pod's cuda-check loads libcuda, and says which cards there are"
NOT_TYPED: Final[Mapping[str, str]] = {
    "make test-gpu": "tests/deviceplugin/test_gpu_program.py runs it on stand-ins",
    "nvidia-smi": _NVIDIAS,
    "nvidia-modprobe": _NVIDIAS,
    "cat /proc/driver/nvidia/version": _NVIDIAS,
    "dmesg": _LOG,
    "systemctl": _SERVICE,
    "helm": "e2e/deploy/chart/test_rendered.py renders it",
    "kubectl apply -k deploy/optional/nvidia-runtime-class": "e2e/deploy/chart/test_rendered.py renders it",
    "kubectl exec USER_POD -- nvidia-smi": _CHECK,
    "kubectl exec USER_POD -- sh -c 'ldconfig": _CHECK,
}
