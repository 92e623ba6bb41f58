"""Faults of a first GPU node, planted: a step of docs/first-gpu-node.md names each, and pods get working cards alone.

Where a fault is undone, the plugin's next start recovers, or the plugin itself. Faults that this machine cannot plant
are in `HELD_ELSEWHERE` of `first_gpu_node_cases`.
"""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from deviceplugin.doctor.facts import Examination
from e2e.control_plane.admin import Json
from e2e.node.node_pods import note_of, pod_seen
from e2e.programs.doctor_program import doctor, run
from e2e.suites.node.first_gpu_node_cases import BY_DAY, CARDS, FAULTS, HELD_ELSEWHERE, NOT_TYPED, READYZ, TYPED
from e2e.support import planted_faults as planted
from e2e.support.documents_site import path_of
from e2e.support.gpu_site import is_unschedulable
from e2e.support.nvidia_site import UNITS, NvidiaNode, NvidiaSite
from e2e.support.shared_node import pods, settled
from tests.support.nvidia.world import uuid_of
from tests.support.repository import ROOT

_SPAN: Final = re.compile(r"`([^`]+)`")
_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LOOKS: Final = 40  # each takes a second or more; a lost card is `failing` for 20 s
_DOCUMENT: Final = ROOT / "docs" / "first-gpu-node.md"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on(nvidia: NvidiaSite) -> AsyncIterator[NvidiaNode]:
    async with nvidia.node("uuid", "/", CARDS) as made:
        made.node.run("mkdir", "-p", str(planted.KEPT.parent))
        yield made


async def report(on: NvidiaNode) -> dict[str, str]:
    """Findings of doctor with their remedies, by check."""
    _, said = await doctor(on.plugin, "-o", "json")
    findings = msgspec.json.decode(said.splitlines()[-1], type=Examination).findings
    return {one.check: f"{one.verdict} {one.found}\n{one.remedy}" for one in findings}


async def restart(on: NvidiaNode) -> None:
    on.plugin.stop()
    on.plugin.start()


async def named(on: NvidiaNode, says: Mapping[str, str]) -> None:
    """Wait until each step says its words."""
    await on.plugin.readyz_until(lambda said: says.get(READYZ, "") in said)
    for step, words in says.items():
        if step.startswith("GPU"):
            await note_of(on.admin, step, on.node.name, words)
    found: dict[str, str] = {}
    for _ in range(_LOOKS):
        found = await report(on)
        missing = {step: words for step, words in says.items() if step.islower() and step != READYZ}
        if all(words in found.get(step, "") for step, words in missing.items()):
            return
    raise AssertionError(found)


async def well(on: NvidiaNode) -> None:
    """Wait until doctor has nothing to say but what this node lacks: NVIDIA's runtime, and the label."""
    unwell: dict[str, str] = {}
    for _ in range(_LOOKS):
        unwell = {check: said for check, said in (await report(on)).items() if not said.startswith("ok")}
        if [*unwell] in (["runtime", "node"], ["runtime"]):
            return
    raise AssertionError(unwell)


async def working(on: NvidiaNode, fault: str, cards: int) -> list[str]:
    """One pod more than cards that work, each for a whole card: what CUDA answers wrongly, or how many run."""
    wanted = [on.pod(f"{fault.replace(' ', '-').lower()}-{number}", UNITS) for number in range(cards + 1)]
    async with pods(on.admin, wanted) as created:
        waiting = 0
        wrong: list[str] = []
        for name in created:
            found = await pod_seen(on.admin, name, lambda one: settled(one) or is_unschedulable(one))
            if settled(found):
                wrong += on.wrong(found)
            else:
                waiting += 1
    return wrong if waiting == 1 else [*wrong, f"{waiting} wait"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in BY_DAY else [pytest.mark.nightly]) for name in FAULTS]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_step_names_the_fault_and_no_pod_gets_a_card_that_does_not_work(on: NvidiaNode, name: str) -> None:
    fault = FAULTS[name]
    if not fault.running:
        on.plugin.stop()
    with fault.plant(on):
        if not fault.running:
            on.plugin.start()
            await on.plugin.listens()
        await named(on, fault.says)
        if not fault.running and not fault.says.keys() & {READYZ, "driver"}:
            await on.plugin.ready()
        assert await working(on, name, fault.working) == []
    await restart(on)
    await on.plugin.ready()
    await well(on)


@pytest.mark.parametrize("name", FAULTS)
def test_the_document_has_a_row_for_the_fault(name: str) -> None:
    assert FAULTS[name].document in _DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.asyncio(loop_scope="module")
async def test_a_toolkit_that_ignores_the_variable_is_asked_by_mounts(nvidia: NvidiaSite) -> None:
    async with nvidia.node("default runtime", "/", 2) as on:
        planted.toolkit_ignores_variables(on)
        await restart(on)
        await on.plugin.ready()
        async with pods(on.admin, [on.pod("by-mounts", 2 * UNITS, cards=2)]) as created:
            (found,) = await on.settled(created)
            assert on.wrong(found) == []


@pytest.mark.parametrize("fault", HELD_ELSEWHERE)
def test_faults_that_cannot_be_planted_here_are_held_by_a_test(fault: str) -> None:
    for path, name in HELD_ELSEWHERE[fault].items():
        assert re.search(rf"\b{re.escape(name)}\b", (ROOT / path).read_text(encoding="utf-8")), path


def commands() -> list[str]:
    """Every command of the document, in its order."""
    text = _DOCUMENT.read_text(encoding="utf-8")
    begins = re.compile(r"(?:kubectl|helm|make|nvidia-[a-z]+|cat|dmesg|systemctl|ls|grep|… exec|… release) \S")
    spans = [" ".join(span.split()).replace("\\|", "|") for span in _SPAN.findall(_FENCED.sub("", text))]
    return [span for span in spans if begins.match(span)]


def test_every_command_is_typed_or_named_with_the_reason_why_not() -> None:
    found = commands()
    left = [one for one in found if one not in TYPED and not one.startswith(tuple(NOT_TYPED))]
    unused = [one for one in TYPED if one not in found]
    unused += [start for start in NOT_TYPED if not any(one.startswith(start) for one in found)]
    assert (left, unused) == ([], [])


@pytest.mark.asyncio(loop_scope="module")
async def test_each_step_of_the_document_does_what_it_says(on: NvidiaNode, tmp_path: Path) -> None:
    async with pods(on.admin, [on.pod("reader", UNITS)]) as created:
        (pod,) = await on.settled(created)
        assert on.wrong(pod) == []
        shell = Shell(on, pod, path_of(tmp_path))
        said = {command: await shell.types(command, typed.where) for command, typed in TYPED.items()}
    await restart(on)
    await on.plugin.ready()
    on.hardware.generate(on.node, planted.SPEC, planted.BY_UUID)
    wrong = {command: (code, text) for command, (code, text) in said.items() if code or TYPED[command].says not in text}
    assert wrong == {}


@dataclass(frozen=True, slots=True)
class Shell:
    """Shells of an operator. pod: a running one of a user. path: folders of programs."""

    on: NvidiaNode
    pod: Json
    path: str

    async def types(self, command: str, where: str) -> tuple[int, str]:
        """Exit code and output."""
        line = command.replace("NODE", self.on.node.name).replace("UUID", uuid_of(0))
        if where == "plugin":
            return await run(self.on.plugin, "release", *line.partition("release ")[2].split())
        if where == "kubectl":
            kubeconfig = self.on.node.cluster.kubeconfig_path()
            # kubectl keeps what it learns about the server in the home folder.
            environment = {"PATH": self.path, "HOME": str(kubeconfig.parent), "KUBECONFIG": str(kubeconfig)}
            done = await asyncio.to_thread(
                subprocess.run, ["sh", "-c", line], env=environment, capture_output=True, text=True, check=False
            )
            return done.returncode, done.stdout + done.stderr
        if where == "pod":
            return 0, self.on.node.container(self.pod).execute("sh", "-c", line.partition("sh -c ")[2].strip("'"))
        return 0, self.on.node.run("sh", "-c", line)
