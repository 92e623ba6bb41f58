"""Commands in the documents: a shell can read them; our programs, the Makefile and the repository know what they name.

Here no one of them runs: `e2e/suites/installed/test_documents.py` runs them.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from typing import Any, Final

import pytest
import typer
import yaml

from deviceplugin import cli as device_plugin
from scheduler import program as scheduler
from scheduler.tools.kubectl import inspect
from scheduler.tools.kubectl import main as kubectl_gpushare
from tests.support.documents import document_commands
from tests.support.documents.document_commands import DOCUMENTS, blocks, commands, uncommented
from tests.support.repository import ROOT

PROGRAMS: Final = {
    "gpushare-scheduler": typer.main.get_command(scheduler.cli),
    "gpushare-device-plugin": typer.main.get_command(device_plugin.cli),
    "kubectl gpushare": typer.main.get_command(kubectl_gpushare.cli),
}
PATHS: Final = re.compile(r"^(docs|e2e|tests|config|deploy/(chart|images|manifests|optional))(/[\w./-]+)?$")
# typer has a click of its own, of which it shows little.
USAGE_ERROR: Final[type[Any]] = typer.BadParameter.__bases__[0]
TARGETS: Final = re.search(r"^\.PHONY: (help .*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
CHART: Final = json.loads((ROOT / "deploy/chart/gpushare-scheduler/values.schema.json").read_text(encoding="utf-8"))


SHELL: Final = blocks("sh")


def ours(words: list[str]) -> tuple[str, list[str]] | None:
    """(program, its arguments); None for a program of others."""
    first = words[0].rpartition("/")[2]
    if first in PROGRAMS:
        return first, words[1:]
    two = " ".join(words[:2])
    return (two, words[2:]) if two in PROGRAMS else None


def wrong(text: str) -> Iterator[str]:
    """What our programs, the Makefile or the repository do not know."""
    for words in commands(uncommented(text)):
        if (own := ours(words)) is not None:
            yield from refused(PROGRAMS[own[0]], own[0], own[1])
        elif words[:3] == ["kubectl", "inspect", "gpushare"]:
            yield from (word for word in words[3:] if word.startswith("-") and word not in inspect_flags())
        elif words[0] == "make":
            assert TARGETS is not None
            yield from (f"make {word}" for word in words[1:] if "=" not in word and word not in TARGETS[1].split())
        yield from (word for word in words if PATHS.match(word) and not (ROOT / word).exists())


def refused(command: Any, name: str, arguments: list[str], parent: Any = None) -> Iterator[str]:  # noqa: ANN401 - of typer's click
    """Why the program does not take these arguments."""
    try:
        context = command.make_context(name, list(arguments), parent)
        if hasattr(command, "as_meant"):
            arguments = command.as_meant(arguments)
        if hasattr(command, "resolve_command") and arguments and not arguments[0].startswith("-"):
            found, inner, rest = command.resolve_command(context, list(arguments))
            yield from refused(inner, found, rest, context)
    except USAGE_ERROR as error:
        yield f"{name}: {error.format_message()}"


@cache
def inspect_flags() -> set[str]:
    """As its own help lists them."""
    with redirect_stdout(StringIO()) as said, pytest.raises(SystemExit):
        inspect.main(["--help"])
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", said.getvalue()))


def unknown_values(text: str) -> list[str]:
    """Of `--set PATH=…`, each path that the chart's schema does not know."""
    return [path for path in re.findall(r"--set ([\w.]+)=", text) if not _is_value(path.split("."))]


def _is_value(path: list[str]) -> bool:
    schema: dict[str, Any] = CHART
    for key in path:
        while "$ref" in schema:
            schema = CHART["$defs"][schema["$ref"].rpartition("/")[2]]
        if key not in schema.get("properties", {}):
            return False
        schema = schema["properties"][key]
    return True


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpushare-scheduler explain POD -n NAMESPACE | less", []),
        ("sudo gpushare-device-plugin run --node-name n & # and's", []),
        ("kubectl -n x exec $POD -- /opt/bin/gpushare-device-plugin status -o jsn", ["invalid value for"]),
        ("gpushare-scheduler explian POD", ["no such command"]),
        ("kubectl gpushare top --sorted", ["no such option"]),
        ("kubectl gpushare \\\n  cordon", ["missing argument"]),
        ("kubectl inspect gpushare -x", ["-x"]),
        ("A=b make tset", ["make tset"]),
        ("kubectl apply -f docs/examples/none.yaml && make demo SERVE=1", ["docs/examples/none.yaml"]),
    ],
)
def test_what_nobody_knows_is_found(text: str, found: list[str]) -> None:
    said = [*wrong(text)]
    assert len(said) == len(found), said
    assert all(part in one.lower() for part, one in zip(found, said, strict=True))


def test_a_value_that_the_chart_does_not_have_is_found() -> None:
    assert unknown_values("--set devicePlugin.config.oldStyleIds=1 --set devicePlugin.confg.a=1 --set a=b") == [
        "devicePlugin.confg.a",
        "a",
    ]


def test_every_fence_says_what_is_in_it() -> None:
    unnamed = [
        (str(path.relative_to(ROOT)), fences.count(""))
        for path in DOCUMENTS
        if "" in (fences := re.findall(r"^ *```(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[::2])
    ]
    assert unnamed == []


def test_documents_have_commands() -> None:
    programs = [own[0] for _, text in SHELL for words in commands(uncommented(text)) if (own := ours(words))]
    assert {program: programs.count(program) > 3 for program in PROGRAMS} == dict.fromkeys(PROGRAMS, True)


def test_a_shell_can_read_every_command() -> None:
    unread = {}
    for document, text in SHELL:
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            unread[document] = done.stderr
    assert unread == {}


def test_every_command_of_ours_is_one_and_every_file_is_there() -> None:
    assert [(document, one) for document, text in SHELL for one in wrong(text)] == []


def test_commands_within_sentences_are_ours_too_though_not_always_whole() -> None:
    found = document_commands.mentioned()
    asked = [(document, command) for document, command in found if not command.endswith("--help")]
    assert len(asked) > 50
    said = [(document, one) for document, command in asked for one in wrong(command)]
    assert [(document, one) for document, one in said if ": Missing " not in one] == []


def test_every_value_that_a_command_sets_is_one_of_the_charts() -> None:
    assert [(document, one) for document, text in SHELL for one in unknown_values(text)] == []


@pytest.mark.parametrize(
    ("document", "text"), [pytest.param(*one, id=f"{one[0]} {n}") for n, one in enumerate(blocks("yaml"))]
)
def test_every_manifest_is_yaml(document: str, text: str) -> None:
    read = [one for one in yaml.safe_load_all(text) if one is not None]
    assert read, document
    assert all(isinstance(one, dict | list) for one in read)
