"""What the documents show, on a cluster where both programs are installed: commands are typed, objects applied.

Every command and every file is, or is named with the reason why not in `document_cases.py`.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.control_plane.admin import Json
from e2e.suites.installed.document_cases import (
    AFTERWARDS,
    DECIDED,
    ENDS_WITH_1,
    NOT_APPLIED,
    NOT_TYPED,
    OF_THE_SCHEDULER,
    SAYS,
)
from e2e.suites.installed.document_shell import Typed, ended_well, reader, typed
from e2e.support.documents_site import DocumentsSite, documents_site
from tests.support.documents import document_commands
from tests.support.repository import ROOT


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


TYPED: Final = {
    document: kept
    for document, commands in COMMANDS.items()
    if (kept := [command for command in commands if named(NOT_TYPED, document, command) is None])
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


def test_the_roadmap_counts_what_is_typed() -> None:
    all_of_them, kept = (sum(map(len, found.values())) for found in (COMMANDS, TYPED))
    said = f"Of {all_of_them} commands that a reader types `test_documents.py` types {kept};"
    assert said in (ROOT / "docs/roadmap.md").read_text(encoding="utf-8")


def test_a_reader_types_whole_commands() -> None:
    unread = [
        command
        for commands in COMMANDS.values()
        for command in commands
        if subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False).returncode
    ]
    assert unread == []
