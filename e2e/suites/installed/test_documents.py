"""What the documents show, on a cluster where both programs are installed: commands are typed, objects applied.

Every command and every file is, or is named with the reason why not in `document_cases.py`.
"""

import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.control_plane.admin import Json
from e2e.control_plane.processes import free_ports
from e2e.suites.installed.document_cases import (
    AFTERWARDS,
    DECIDED,
    DRIVER,
    ENDS_WITH_1,
    JQ,
    NOT_APPLIED,
    NOT_TYPED,
    OF_THE_SCHEDULER,
    SAYS,
)
from e2e.support.documents_site import NODE, DocumentsSite, documents_site
from tests.support.documents import document_commands
from tests.support.repository import ROOT

# What has no end of its own: it is ended once it has said what it is to say, or after a minute.
_ENDLESS: Final = re.compile(r"logs .* -f$|port-forward .*[^&]$|demo .*--serve|gpushare page")
_ENDED: Final = 124
_WITHIN_S: Final = 300
_LOOKS: Final = 1200  # every 50 ms
_UNTIL_SAID: Final = """\
{{ env {line} &
}} >{said} 2>&1
for _ in {{1..{looks}}}; do grep -qF -- {words} {said} && break; kill -0 $! 2>/dev/null || break; sleep 0.05; done
if kill $! 2>/dev/null; then echo {ended} >{code}; else wait $!; echo $? >{code}; fi
"""
_UNTIL_IT_LISTENS: Final = """\
for _ in {{1..{looks}}}; do (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.05; done
"""
_FORWARDED: Final = re.compile(r"(port-forward \S+) (\d+)")
_PORTS: Final = ("10261", "10264", "8080")
_PORT: Final = re.compile(rf"\b({'|'.join(_PORTS)})\b")
# As a word of its own: neither the shell's variable nor the head of a column.
_NAME: Final = re.compile(
    r"(?<![\w$-])(USER_POD|PLUGIN_POD|SCHEDULER_POD|POD|NODE|NAMESPACE|ACCOUNT|pod\.yaml)(?![\w:=])"
)


@dataclass(frozen=True, slots=True)
class Typed:
    """command: as the document has it. endless: it has no end of its own."""

    command: str
    endless: bool
    code: int
    said: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Who types a document.

    pod: the one in kube-system that the document means. ports: free ones, each for one that the document forwards to or
    listens on.
    """

    site: DocumentsSite
    pod: str
    ports: Mapping[str, int]

    def names(self, command: str) -> Mapping[str, str]:
        """What the capitals stand for in this command."""
        user_pod = "too-big" if re.search(r"\b(explain|describe)\b", command) else "first-pod"
        pods = {"USER_POD": user_pod, "PLUGIN_POD": self.site.plugin, "SCHEDULER_POD": self.site.scheduler}
        pods["POD"] = self.pod if "-n kube-system" in command else user_pod
        own = {"NODE": NODE, "NAMESPACE": "default", "ACCOUNT": "default"}
        return own | pods | {"pod.yaml": "docs/examples/first-pod.yaml"}

    def line(self, command: str) -> str:
        """The command as this reader types it."""
        bare = re.sub(r"\s+#.*$", "", command)
        names = self.names(bare)
        filled = _NAME.sub(lambda found: names[found[1]], bare)
        forwards = _FORWARDED.search(filled)
        filled = _PORT.sub(lambda found: str(self.ports[found[1]]), filled)
        listens = f"{self.ports[forwards[2]]}:{self.site.ports[forwards[2]]}" if forwards else ""
        return _FORWARDED.sub(rf"\1 {listens}", filled) if forwards else filled


def reader(site: DocumentsSite, pod: str) -> Reader:
    """One with ports of his own."""
    return Reader(site, pod, dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)))


def typed(who: Reader, commands: Sequence[tuple[str, str]], folder: Path) -> list[Typed]:
    """All of them, whatever each says. commands: with words that an endless one is to say. folder: for their output."""
    script = folder / "typed.sh"
    lines = [_line(who, *command, folder / str(number)) for number, command in enumerate(commands)]
    script.write_text("".join([*lines, "kill $(jobs -p) 2>/dev/null; wait\n"]), encoding="utf-8")
    environment = {"PATH": who.site.path, "HOME": str(who.site.home)}
    # Ends what is in the background too.
    within = ["timeout", str(_WITHIN_S), "bash", str(script)]
    subprocess.run(within, cwd=_clone(folder), env=environment, stdin=subprocess.DEVNULL, check=False)
    return [_typed(who, command, folder / str(number)) for number, (command, _) in enumerate(commands)]


def _clone(folder: Path) -> Path:
    """What the commands name of this clone; what they write lies beside it."""
    made = folder / "clone"
    made.mkdir()
    for name in (".venv", "deploy", "docs"):
        (made / name).symlink_to(ROOT / name)
    return made


def _line(who: Reader, command: str, words: str, output: Path) -> str:
    """What the shell is given for one command."""
    line, said, code = who.line(command), f"{output}.said", f"{output}.code"
    if _ENDLESS.search(line):
        ends = {"words": shlex.quote(words), "looks": _LOOKS, "ended": _ENDED}
        return _UNTIL_SAID.format(line=line, said=said, code=code, **ends)
    given = f"{{ {line}\n}} >{said} 2>&1; echo $? >{code}\n"
    if forwards := re.search(r"port-forward \S+ (\d+):.*&$", line):
        given += _UNTIL_IT_LISTENS.format(looks=_LOOKS, port=forwards[1])
    return given


def _typed(who: Reader, command: str, output: Path) -> Typed:
    code, said = (Path(f"{output}.{what}") for what in ("code", "said"))
    if not code.exists():
        return Typed(command, endless=False, code=_ENDED, said=f"not at its end after {_WITHIN_S} s with all before it")
    endless = bool(_ENDLESS.search(who.line(command)))
    return Typed(command, endless, int(code.read_text(encoding="utf-8")), said.read_text(encoding="utf-8"))


def ended_well(one: Typed, code: int = 0) -> bool:
    """Whether it ended with that code, or went on until it was ended, where it has no end of its own."""
    return one.code == (_ENDED if one.endless else code)


def _all() -> dict[str, list[str]]:
    """Of each document what a reader types, in order."""
    found: dict[str, list[str]] = {}
    for document, text in document_commands.blocks("sh"):
        found.setdefault(document, []).extend(document_commands.typed(text))
    return found


COMMANDS: Final = _all()


def named(table: Mapping[str, Mapping[str, str]], document: str, command: str) -> str | None:
    """What the table has for the command."""
    begins = [text for beginning, text in table.get(document, {}).items() if command.startswith(beginning)]
    return begins[0] if begins else None


# Reasons why a command is not typed that do not hold on this machine.
_UNTRUE: Final = frozenset({JQ} if shutil.which("jq") else ())
TYPED: Final = {
    document: kept
    for document, commands in COMMANDS.items()
    if (kept := [command for command in commands if named(NOT_TYPED, document, command) in {None, *_UNTRUE}])
}


SIMULATED: Final = frozenset({"nodes", "pods", "faults"})
CONFIGURATION: Final = "SchedulerConfiguration"
DECIDED_WITHIN_S: Final = 40.0
LOOK_EVERY_S: Final = 0.2


def _files() -> dict[str, list[str]]:
    """Of each document its files of YAML, without the documents that are named in NOT_APPLIED."""
    found: dict[str, list[str]] = {}
    for document, text in document_commands.blocks("yaml"):
        found.setdefault(document, []).append(text)
    return {document: texts for document, texts in found.items() if document not in NOT_APPLIED}


FILES: Final = _files()


@pytest.fixture(scope="module")
def site(node_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentsSite]:
    del node_ready
    with documents_site(tmp_path_factory.mktemp("documents")) as made:
        yield made


@pytest.mark.parametrize("document", TYPED)
def test_what_a_reader_types_does_what_the_document_says(site: DocumentsSite, document: str, tmp_path: Path) -> None:
    who = reader(site, site.scheduler if document in OF_THE_SCHEDULER else site.plugin)
    also = [AFTERWARDS[document]] if document in AFTERWARDS else []

    done = typed(who, [(one, named(SAYS, document, one) or "") for one in [*TYPED[document], *also]], tmp_path)

    assert [f"{one.command}: {one.code}: {one.said}" for one in done if not as_documented(document, one)] == []


def test_cards_are_released_for_another_driver_and_reclaimed_by_the_next_plugin(
    site: DocumentsSite, tmp_path: Path
) -> None:
    document, ready = "docs/nodes-and-cards.md", _allocatable(site)
    commands = [one for one in COMMANDS[document] if named(NOT_TYPED, document, one) == DRIVER]
    before, after = [[one for one in commands if ("NEW_" in one) == new] for new in (False, True)]
    assert (len(before), len(after)) == (2, 2)

    done = _typed_by_name(site, before, tmp_path / "before")
    _next_plugin(site)
    done += _typed_by_name(site, after, tmp_path / "after")

    assert [f"{one.command}: {one.code}: {one.said}" for one in done if not ended_well(one)] == []
    until = time.monotonic() + DECIDED_WITHIN_S
    while (found := _allocatable(site)) != ready and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    assert found == ready


def _typed_by_name(site: DocumentsSite, commands: Sequence[str], folder: Path) -> list[Typed]:
    """Type commands that name the plugin's pod, also as the new one."""
    folder.mkdir()
    return typed(reader(site, site.plugin), [(one.replace("NEW_", ""), "") for one in commands], folder)


def _next_plugin(site: DocumentsSite) -> None:
    """Wait until the DaemonSet's next pod is ready, and name it to the readers."""
    label = "app.kubernetes.io/name=gpushare-scheduler-device-plugin"
    site.run("kubectl", "-n", "kube-system", "rollout", "status", "daemonset", "gpushare-scheduler-device-plugin")
    site.plugin = (
        site.run("kubectl", "-n", "kube-system", "get", "pods", "-l", label, "-o", "name").strip().split("/")[-1]
    )


def _allocatable(site: DocumentsSite) -> str:
    path = "jsonpath={.status.allocatable.aliyun\\.com/gpu-mem}"
    return site.run("kubectl", "get", "node", NODE, "-o", path)


def as_documented(document: str, one: Typed) -> bool:
    """Whether it ended as it should, and said what it should."""
    fails = named(ENDS_WITH_1, document, one.command)
    words = fails or named(SAYS, document, one.command) or ""
    nothing_found = "| grep" in one.command and (one.code, one.said) == (1, "")
    return nothing_found or (ended_well(one, 1 if fails else 0) and words in one.said)


@pytest.mark.parametrize("document", DECIDED)
def test_objects_of_a_document_are_taken_and_their_pods_decided(site: DocumentsSite, document: str) -> None:
    whole = "---\n".join(FILES[document])
    site.run("kubectl", "apply", "-f", "-", given=whole)
    try:
        until = time.monotonic() + DECIDED_WITHIN_S
        while (others := otherwise(site, DECIDED[document])) and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
    finally:
        site.run("kubectl", "delete", "--wait=false", "-f", "-", given=whole)
    assert others == {}


def otherwise(site: DocumentsSite, expected: Mapping[str, str]) -> dict[str, list[str | None]]:
    """What the pods of each beginning were told, where there is none yet, or one was told something else."""
    pods: list[Json] = json.loads(site.run("kubectl", "get", "pods", "-o", "json"))["items"]
    found = {beginning: [told(pod) for pod in pods if is_of(pod, beginning)] for beginning in expected}
    return {
        beginning: said
        for beginning, said in found.items()
        if not said or not all(as_expected(expected[beginning], one) for one in said)
    }


def is_of(pod: Json, beginning: str) -> bool:
    """Whether the pod has that name, or was made by what has it."""
    name: str = pod["metadata"]["name"]
    return name == beginning or (beginning.endswith("-") and name.startswith(beginning))


def told(pod: Json) -> str | None:
    """Why it waits, "" where it has a node; None: nobody has said anything yet."""
    (condition,) = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"] or [{}]
    return "" if condition.get("status") == "True" else condition.get("message")


def as_expected(words: str, said: str | None) -> bool:
    """Whether it was told these words, or has its node where there are none."""
    return said is not None and (words in said if words else not said)


@pytest.mark.parametrize("document", [document for document in FILES if document not in DECIDED])
def test_files_of_a_document_are_read_by_simulate(site: DocumentsSite, document: str, tmp_path: Path) -> None:
    files, configuration = ["docs/examples/cluster.yaml"], list[str]()
    for number, text in enumerate(FILES[document]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        read = yaml.safe_load(text)
        if read.get("kind") == CONFIGURATION:
            configuration = ["--config", str(path)]
        else:
            assert read.keys() <= SIMULATED, "neither objects that are decided, nor named in NOT_APPLIED"
            files = [str(path), *(one for one in files if not one.startswith("docs/"))]
    site.run("gpushare-scheduler", "simulate", *configuration, *files)


def test_every_document_that_is_named_has_files() -> None:
    shown = {document for document, _ in document_commands.blocks("yaml")}
    assert (NOT_APPLIED.keys() | DECIDED.keys()) - shown == set()


@pytest.mark.parametrize("table", [NOT_TYPED, ENDS_WITH_1, SAYS], ids=["not typed", "ends with 1", "says"])
def test_every_entry_of_a_table_is_about_a_command(table: Mapping[str, Mapping[str, str]]) -> None:
    unused = [
        (document, beginning)
        for document, beginnings in table.items()
        for beginning in beginnings
        if not any(command.startswith(beginning) for command in COMMANDS.get(document, []))
    ]
    assert unused == []


def test_a_reader_types_whole_commands() -> None:
    unread = [
        command
        for commands in COMMANDS.values()
        for command in commands
        if subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False).returncode
    ]
    assert unread == []
