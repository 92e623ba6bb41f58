"""Files and answers that are read at start or on a node, each with a few things wrong, one case at a time.

What must hold: only the exceptions that are documented; what is said of a mistake names the file or the variable, in
lines that a person can read; what could not be read does no more harm than what is not there.
"""

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from config.clusterfile import reading as clusterfile
from config.protocol.inventory import Card
from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import Resources, configuration_model, resolve
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.allocation.decision import Undecided, allocated_units, decided
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.cdi.nvidia_spec import real_cards
from deviceplugin.cdi.spec import CdiError
from deviceplugin.cdi.spec_files import NvidiaSpecTree
from deviceplugin.cli import configured
from deviceplugin.driver.cards import DriverCard
from deviceplugin.health.record import HealthFile, LastKnownFile
from deviceplugin.kubelet import checkpoint
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.session import SessionFile
from deviceplugin.node.starts import StartsFile
from deviceplugin.reconcile.usage import accounts, seen, shown_containers
from scheduler.kube import objects, port
from scheduler.kube.port import Changed
from scheduler.kube.rest import decoding
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.client_config.connect import ConnectError, connect
from scheduler.kube.rest.decoding import Decoder
from scheduler.kube.rest.failures import error_from_answer
from scheduler.plugins.registry import describe
from scheduler.tools.cli.answering import ENV_PREFIX
from tests.fuzz import corpus, planted
from tests.fuzz.mutations import Mutator
from tests.support.node.ports import Recorded
from tests.support.repository import ROOT
from tests.support.servers.certificates import CA

_BOOT: Final = "23d0cbc2-859f-4e5e-9d1a-f76a0f7da1d3"
_CARDS: Final = (
    Card(index=0, uuid="GPU-8ef24466-da8d-5c70-aee2-d8f9f45d12f9", model="SIM", memory_mib=15_360, units=15),
    Card(index=1, uuid="GPU-4af565da-bb72-5450-9432-df6c33327daa", model="SIM", memory_mib=15_360, units=15),
)
_LONGEST_LINE: Final = 2_000
# Each that is unknown is compared with every field: a program with ten thousand starts late.
_MOST_VARIABLES: Final = 200
_MODEL: Final = configuration_model(describe())


@dataclass(frozen=True, slots=True)
class Loader:
    """read: takes a case as a file; True when something was wrong with it and was said."""

    name: str
    documents: Sequence[Any]
    read: Callable[[Path], bool]
    as_yaml: bool = False
    finish: Callable[[Any], Any] = lambda found: found

    def mutator(self) -> Mutator:
        return Mutator(self.documents)


@dataclass
class Outcome:
    """counts: cases of each loader. said: those with a mistake that was told. slowest: as of objects."""

    counts: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)


class CaseFailed(AssertionError):
    """Names the loader, the number of the case, and what it was."""


def cases(loader: Loader, numbers: range, folder: Path, outcome: Outcome) -> None:
    """Read these cases; each number makes its own. folder: an empty one. Raises CaseFailed."""
    mutator = loader.mutator()
    for number in numbers:
        rng = random.Random(f"{loader.name} {number}")  # noqa: S311 - to be repeated
        document = rng.choice(loader.documents)
        text = mutator.text(document, rng, loader.finish)
        if loader.as_yaml and rng.random() < 0.5:
            text = _as_yaml(text)
        file = folder / "case"
        file.write_bytes(text)
        began_s = time.process_time()
        try:
            said = loader.read(file)
        except Exception as error:
            message = f"{loader.name}, case {number}: {repr(error)[:2000]}; {text[:2000].decode(errors='replace')}"
            raise CaseFailed(message) from error
        took_s = time.process_time() - began_s
        outcome.counts[loader.name] += 1
        outcome.said[loader.name] += said
        outcome.slowest[loader.name] = max(outcome.slowest.get(loader.name, (0.0, 0)), (took_s, number))


def _as_yaml(text: bytes) -> bytes:
    """As people write it, where it is still a document."""
    try:
        return yaml.safe_dump(json.loads(text), allow_unicode=True).encode(errors="surrogatepass")
    except (ValueError, RecursionError, yaml.YAMLError):
        return text


# Configurations


def _scheduler_configuration(file: Path) -> bool:
    return _configuration(file, lambda: resolve(load(_MODEL, file=file, environ={}, flags={}, env_prefix=ENV_PREFIX)))


def _plugin_configuration(file: Path) -> bool:
    return _configuration(file, lambda: configured(file, {"NODE_NAME": "n1"}, {}, None))


def _environment(file: Path) -> bool:
    """The same by variables: what a Deployment's author writes."""
    try:
        written = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return True
    environ = {
        f"{ENV_PREFIX}{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in islice(written.items() if isinstance(written, dict) else (), _MOST_VARIABLES)
    }
    return _configuration(
        Path("environment "), lambda: load(_MODEL, file=None, environ=environ, flags={}, env_prefix=ENV_PREFIX)
    )


def _cluster_file(file: Path) -> bool:
    return _configuration(file, lambda: clusterfile.read(file))


def _configuration(file: Path, read: Callable[[], object]) -> bool:
    try:
        read()
    except ConfigurationError as error:
        for mistake in error.mistakes:
            assert str(file) in mistake.source, mistake
            assert mistake.message, mistake
            assert len(str(mistake)) < _LONGEST_LINE, str(mistake)[:4000]
            assert "\n" not in mistake.message, mistake
        return True
    return False


# Kubeconfigs


def _kubeconfig(file: Path) -> bool:
    async def load_it() -> None:
        connection = await connect({}, kubeconfig=file)
        await connection.credentials.identity()
        await KubeCluster(connection, random.Random(0)).close()  # noqa: S311 - a seed, no secret
        await connection.credentials.close()

    told = ""
    try:
        asyncio.run(load_it())
    except ConnectError as error:
        told = str(error)
    assert not told or str(file) in told
    assert planted.PLANTED not in told, told
    return bool(told)


# The device plugin's node


def _checkpoint(file: Path) -> bool:
    text = file.read_bytes()
    try:
        entries = checkpoint.parse(text)
        checkpoint.registered(text)
        for entry in entries[:100]:
            entry.answer()
    except CheckpointError:
        return True
    return False


def _state(name: str, use: Callable[[Path], str]) -> Callable[[Path], bool]:
    """use: reads and writes the state of a folder; what was wrong with it."""

    def read(file: Path) -> bool:
        place = file.parent / name
        file.replace(place)
        try:
            return bool(use(file.parent))
        finally:
            place.unlink(missing_ok=True)

    return read


def _journal(folder: Path) -> str:
    """Followed as a node does that has these pods: none of them may end the plugin."""
    records = _records(folder)
    records.pods.apply(_PODS_OF_CORPUS)
    for pod in (asking := records.asking()):
        try:
            decision = decided(pod, _CARDS, 512)
        except Undecided:
            continue
        for container in pod.asking():
            ContainerShare(pod, container, decision.shares[container.name], decision.unit_mib).values()
    shown_containers(accounts(seen(asking, _CARDS, 512), (), (), {}, unit_mib=512), _CARDS)
    allocated_units(asking, _CARDS, 512)
    assert not Journal(folder).problem
    return records.journal.problem


def _health(folder: Path) -> str:
    health = HealthFile(folder, _BOOT)
    health.save(health.load())
    return health.problem


def _session(folder: Path) -> str:
    session = SessionFile(folder)
    found = session.load()
    if found is not None:
        session.save(found)
    return "" if found else "nothing"


def _starts(folder: Path) -> str:
    assert 0.0 <= StartsFile(folder, _BOOT).started(90_000.0) <= 600.0
    return ""


def _cdi(folder: Path) -> str:
    found = NvidiaSpecTree([folder]).read()
    card = DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=16_384, minor=0)
    try:
        msgspec.json.encode(real_cards([card], found.specs).wire())
    except CdiError as error:
        return str(error)
    return " ".join(found.problems)


def _records(journal: Path) -> NodeRecords:
    return NodeRecords(
        resources=Resources(),
        pods=OwnPods(),
        journal=Journal(journal),
        kubelet=None,  # type: ignore[arg-type] # nothing is asked of it here
        checkpoint=journal / "none",
        recorder=Recorded(),
        unit_mib=1024,
        cards=_CARDS,
    )


def _own_pods(file: Path) -> bool:
    """What the plugin makes of its pods at each call of the kubelet; a good one beside it is read."""
    try:
        event = _PODS.watched(b'{"type":"ADDED","object":' + file.read_bytes() + b"}")
    except port.ApiError:
        return True
    records = _records(file.parent / "journal")
    records.pods.apply([Changed(_GOOD), event])
    asking = records.asking()
    allocated_units(asking, _CARDS, 1024)
    (file.parent / "journal" / "journal.json").unlink(missing_ok=True)
    assert _GOOD.metadata.uid in {pod.uid for pod in asking}
    return len(asking) == 1


# What an API server, or somebody in its place, answers


def _answers(file: Path) -> bool:
    text = file.read_bytes()
    told = []
    for read in (
        lambda: decoding.page(text),
        lambda: _PODS.watched(text),
        lambda: _PODS.listed(msgspec.Raw(text)),
        lambda: _PODS.object(text),
        lambda: [error_from_answer(status, {"Retry-After": text[:20].decode("latin-1")}, text) for status in _STATUSES],
    ):
        try:
            read()
        except port.ApiError as error:
            told.append(error.message)
    assert all(len(message) < _LONGEST_LINE for message in told), told
    return bool(told)


_STATUSES: Final = (302, 400, 403, 404, 409, 429, 500, 504)
_PODS: Final = Decoder(port.PODS)
_PODS_OF_CORPUS: Final = [Changed(msgspec.convert(pod, objects.PodObject)) for pod in corpus.objects()["pods"]]
_GOOD: Final = msgspec.convert(
    next(pod for pod in corpus.objects()["pods"] if pod["metadata"]["name"] == "mixed")
    | {"metadata": {"name": "good", "namespace": "good", "uid": "good"}},
    objects.PodObject,
)


def _yaml(*path: str) -> list[Any]:
    return list(yaml.safe_load_all(ROOT.joinpath(*path).read_text(encoding="utf-8")))


def _configurations(kind: str) -> list[Any]:
    """Those that are shipped, and one that says everything."""
    shipped = [
        yaml.safe_load(text) for one in _yaml("deploy", "manifests", "configmap.yaml") for text in one["data"].values()
    ]
    return [one for one in shipped if one.get("kind") == kind] + [corpus.document("configurations.json")[kind]]


def _kubeconfigs() -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = corpus.document("kubeconfigs.json")
    ca = base64.b64encode(CA.encode()).decode()
    return [json.loads(json.dumps(one).replace("THE CA", ca)) for one in found]


def loaders() -> list[Loader]:
    """All of them."""
    pods = corpus.objects()["pods"]
    lines = [{"type": "MODIFIED", "object": pods[0]}, *corpus.document("answers.json")]
    return [
        Loader(
            "scheduler configuration", _configurations("SchedulerConfiguration"), _scheduler_configuration, as_yaml=True
        ),
        Loader(
            "device plugin configuration",
            _configurations("DevicePluginConfiguration"),
            _plugin_configuration,
            as_yaml=True,
        ),
        Loader("environment", corpus.document("configurations.json")["environment"], _environment),
        Loader("kubeconfig", _kubeconfigs(), _kubeconfig, as_yaml=True, finish=planted.in_kubeconfig),
        Loader("cluster file", _yaml("docs", "examples", "cluster.yaml"), _cluster_file, as_yaml=True),
        Loader("checkpoint", [corpus.document("checkpoint.json")], _checkpoint),
        Loader("journal", [corpus.document("journal.json")], _state("journal.json", _journal)),
        Loader("health", [corpus.document("health.json")], _state("health.json", _health)),
        Loader("inventory file", [corpus.document("inventory.json")], _state("inventory.json", _inventory_file)),
        Loader("session", [corpus.document("session.json")], _state("session.json", _session)),
        Loader("starts", [corpus.document("starts.json")], _state("starts.json", _starts)),
        Loader("CDI spec", [corpus.document("cdi.json")], _state("nvidia.yaml", _cdi), as_yaml=True),
        Loader("own pods", pods, _own_pods),
        Loader("answers", lines, _answers),
    ]


def _inventory_file(folder: Path) -> str:
    return LastKnownFile(folder, _BOOT).load().problem
