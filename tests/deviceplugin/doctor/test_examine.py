"""What the doctor finds on made-up nodes: file trees, NVML doubles, an API server that answers, a plugin that does."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from config.protocol import names
from config.settings.deviceplugin import DevicePluginConfiguration, Kubelet
from config.settings.scheduler import ClientConnection
from deviceplugin.doctor.checks import examined
from deviceplugin.doctor.examine import examine
from deviceplugin.doctor.facts import Facts, PodFacts, Verdict
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.driver.cuda_trials import CudaTrials
from deviceplugin.driver.nvml import NvmlSource
from deviceplugin.driver.process import DriverThreads
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.report.status import CardStatus, DevicePluginStatus
from deviceplugin.report.status_page import status_page
from scheduler.process.probes import serve
from tests.support.node.nvml_double import NvmlDouble, card
from tests.support.servers.api_server import ApiServer, ok, status
from tests.support.servers.listing_server import kubeconfig_of

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "k8s.device-plugin.nvidia.com/gpu",
    "containerEdits": {
        "mounts": [{"hostPath": LIBRARY, "containerPath": LIBRARY}],
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
    },
    "devices": [{"name": "GPU-0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
}
NVML = "36 35 98:0 /x /usr/lib/libnvidia-ml.so.580.95.05 ro - ext4 /dev/sda ro"
STATUS = DevicePluginStatus(
    node="n1", mode="cdi", driver="580.95.05", unit_mib=1024, announced_units=79, registered=True, nvidia_runtime=True
)


def pod(name: str, scheduler: str, annotations: dict[str, str]) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {names.GPU_MEM: "1"}}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
        "spec": {"schedulerName": scheduler, "runtimeClassName": "nvidia", "containers": [container]},
        "status": {"phase": "Running"},
    }


def no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


class Opened(NvmlSource):
    """A driver in threads of this process."""

    def end(self) -> None:
        """Nothing holds it."""

    def on_end(self, callback: Callable[[], None]) -> None:
        """It never ends by itself."""


class Tried(Opened):
    """A process that tries CUDA."""

    def __init__(self, answer: CudaAnswer) -> None:
        super().__init__()
        self._answer = answer

    def start_cuda(self, _: str) -> CudaAnswer:
        """Answer as `CudaProgram` does."""
        return self._answer


@dataclass
class MadeUpNode:
    """folder: everything of the node that is a file. status: None where no plugin answers."""

    folder: Path
    library: NvmlDouble = field(default_factory=lambda: NvmlDouble(card(0, nvmlDeviceGetPersistenceMode=1)))
    status: DevicePluginStatus | None = STATUS
    pods: list[dict[str, Any]] = field(default_factory=list)
    mountinfo: str = NVML
    refused: bool = False
    answers: dict[str, CudaAnswer] = field(default_factory=lambda: {"GPU-0": CudaAnswer(0), "GPU-1": CudaAnswer(0)})
    tried: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("plugins", "cdi", "resources"):
            (self.folder / name).mkdir()
        for name in ("plugins/kubelet.sock", "resources/kubelet.sock"):
            (self.folder / name).touch()
        (self.folder / "cdi" / "nvidia.json").write_text(json.dumps(SPEC))

    async def examined(self) -> Facts:
        (self.folder / "mountinfo").write_text(self.mountinfo)
        async with ApiServer().serving() as server, self._plugin() as status_at:
            place = {names.GPU_MEM: "79"}
            meta = {"name": "n1", "uid": "u", "labels": {"gpushare": "true"}, "annotations": {names.INVENTORY: "{}"}}
            info = {"containerRuntimeVersion": "containerd://2.1.9"}
            node = {
                "kind": "Node",
                "metadata": meta,
                "status": {"capacity": place, "allocatable": place, "nodeInfo": info},
            }
            server.script = (
                [status(403, "no such right")]
                if self.refused
                else [ok(node), ok({"kind": "PodList", "items": self.pods})]
            )
            return await examine(
                self._configuration(int(server.url.rpartition(":")[2])),
                {},
                SupervisedDriver(self._opened, trials=CudaTrials(self._cuda)),
                status_at=status_at,
                mountinfo=self.folder / "mountinfo",
            )

    async def _cuda(self, uuid: str) -> DriverThreads:
        self.tried.append(uuid)
        return DriverThreads(Tried(self.answers[uuid]))

    async def _opened(self) -> DriverThreads:
        return DriverThreads(Opened(self.library, load=no_library))

    @asynccontextmanager
    async def _plugin(self) -> AsyncIterator[str]:
        told = self.status
        if told is None:
            yield "127.0.0.1:9"
            return
        pages = {"/status": status_page(lambda: told)}
        runner = await serve(("127.0.0.1", 0), lambda: iter(()), ready=str, alive=str, pages=pages)
        yield f"127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()

    def _configuration(self, port: int) -> DevicePluginConfiguration:
        return DevicePluginConfiguration(
            node_name="n1",
            client_connection=ClientConnection(kubeconfig=kubeconfig_of(port, self.folder)),
            cdi_spec_dirs=(str(self.folder / "cdi"),),
            state_dir=str(self.folder / "state"),
            kubelet=Kubelet(
                device_plugin_dir=str(self.folder / "plugins"),
                pod_resources_socket=str(self.folder / "resources" / "kubelet.sock"),
            ),
        )


@pytest.fixture
def node(tmp_path: Path) -> MadeUpNode:
    return MadeUpNode(tmp_path)


def bad(facts: Facts) -> dict[str, str]:
    """Check -> what was found, of those that are not ok."""
    return {one.check: one.found for one in examined(facts).findings if one.verdict is not Verdict.OK}


async def test_a_node_that_is_well(node: MadeUpNode) -> None:
    node.pods = [pod("p", "gpushare-scheduler", {names.ALLOCATION: "{}"}), pod("none", "x", {})]
    node.pods[1]["spec"]["containers"][0]["resources"] = {}
    facts = await node.examined()
    assert bad(facts) == {}
    assert (facts.driver, facts.node.allocatable, facts.node.runtime_version) == ("580.95.05", 79, "containerd://2.1.9")
    assert facts.node.pods == (PodFacts("ns/p", "gpushare-scheduler", "nvidia", scheduled=True),)


async def test_a_node_without_a_driver(node: MadeUpNode) -> None:
    node.library.broken = pynvml.NVMLError_LibraryNotFound()
    node.mountinfo, node.status = "", None
    found = bad(await node.examined())
    told = ["driver", "runtime", "libcuda", "limits", "cuda", "persistence", "plugin", "cards", "isolation", "drift"]
    assert list(found) == told
    assert "is the driver installed on this node?" in found["driver"]
    assert "is the plugin running here?" in found["plugin"]


async def test_specs_of_an_older_driver_and_others_that_cannot_be_read(node: MadeUpNode) -> None:
    (node.folder / "cdi" / "nvidia.json").write_text(json.dumps(SPEC).replace("580.95.05", "570.12"))
    (node.folder / "cdi" / "broken.yaml").write_text("kind: nvidia.com/gpu\na: [")
    node.mountinfo, node.status = "", None
    facts = await node.examined()
    assert "was written for driver 570.12; the driver is now 580.95.05" in bad(facts)["libcuda"]
    assert "broken.yaml" in facts.spec_problems[0]


async def test_a_kubelet_that_keeps_its_files_elsewhere_or_damaged(node: MadeUpNode) -> None:
    (node.folder / "plugins" / "kubelet_internal_checkpoint").write_text("{")
    assert "kubelet checkpoint cannot be read" in bad(await node.examined())["kubelet"]
    (node.folder / "resources" / "kubelet.sock").unlink()
    assert "it lists the pods that the kubelet has admitted" in bad(await node.examined())["kubelet"]


async def test_pods_that_came_past_the_scheduler(node: MadeUpNode) -> None:
    node.pods = [pod("x", "", {})]
    assert "ns/x (schedulerName not set)" in bad(await node.examined())["pods"]


async def test_an_api_server_that_refuses(node: MadeUpNode) -> None:
    node.refused = True
    found = bad(await node.examined())
    assert "no such right" in found["node"]
    assert set(found) == {"node", "pods"}


async def test_cuda_is_tried_on_each_card_that_answers(node: MadeUpNode) -> None:
    node.library = NvmlDouble(card(0), card(1), card(2, nvmlDeviceGetMigMode=[1, 1]))
    node.answers["GPU-1"] = CudaAnswer(999)
    assert "card 1 (GPU-1): cuInit returned 999" in bad(await node.examined())["cuda"]
    assert node.tried == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("reason", ["released", "mig"])
async def test_cuda_is_not_tried_while_a_card_is_released(node: MadeUpNode, reason: str) -> None:
    """A split card that is released is announced as suspect, with the reason that it is split."""
    released = CardStatus(0, "GPU-0", "M", 1024, 1, 0, "suspect", None, reason)
    node.status = msgspec.structs.replace(STATUS, cards=(released,))
    assert "was not tested on card 0 (GPU-0)" in bad(await node.examined())["cuda"]
    assert node.tried == []


async def test_after_one_card_without_an_answer_no_other_is_tried(node: MadeUpNode) -> None:
    node.library = NvmlDouble(card(0), card(1))
    node.answers["GPU-0"] = CudaAnswer(detail="cuInit did not return within 20 s")
    assert "card 0 (GPU-0): cuInit did not return within 20 s" in bad(await node.examined())["cuda"]
    assert node.tried == ["GPU-0"]
