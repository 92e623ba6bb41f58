"""What the commands print goes through one door, and what people are told to type is quoted."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.support.repository import ROOT

# The door: lines and JSON, lines with colours, what rich draws, and log lines.
DOOR: Final = frozenset(
    {
        "scheduler/process/output.py",
        "scheduler/tools/cli/answering.py",
        "scheduler/tools/cli/console.py",
        "scheduler/process/logs.py",
    }
)
STREAMS: Final = frozenset({"stdout", "stderr", "__stdout__", "__stderr__"})
WRITES: Final = frozenset({"write", "writelines", "buffer"})
PRINTS: Final = frozenset({"print", "echo", "secho", "pprint", "print_json", "print_exc", "print_exception"})
# A name of a stream that was passed on.
PASSED: Final = frozenset({"out", "err", "stream", "stdout", "stderr"})
A_COMMAND: Final = re.compile(r"\b(kubectl|nvidia-smi|helm|gpushare-device-plugin [a-z]+) [^`;]*$")


@cache
def sources() -> dict[str, ast.Module]:
    """By path."""
    paths = (path for top in ("scheduler", "deviceplugin", "config") for path in sorted((ROOT / top).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def is_a_stream(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="sys"), attr=attr):
            return attr in STREAMS
        case ast.Name(id=name):
            return name in PASSED
    return False


def beside_the_door(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=attr) if attr in WRITES and is_a_stream(value):
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id=name)) if name in PRINTS:
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="typer" | "click" | "rich" | "traceback"), attr=name)
            ) if name in PRINTS:
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os"), attr="write"), args=[ast.Constant(value=1 | 2), *_]
            ):
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module="rich" | "rich.console", names=names):
                yield from (
                    f"{node.lineno}: rich's own {one.name}" for one in names if one.name in {"Console", "print"}
                )


def unquoted(tree: ast.AST) -> Iterator[str]:
    """Commands in f-strings with a value in them: `scheduler.process.terminal.typed` quotes it. Constants need none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            said = ""
            for part in node.values:
                match part:
                    case ast.Constant(value=text):
                        said += str(text)
                    case ast.FormattedValue(value=value) if A_COMMAND.search(said) and not is_a_constant(value):
                        yield f"{node.lineno}: {ast.unparse(node)}"
                        break


def is_a_constant(value: ast.expr) -> bool:
    return ast.unparse(value).rpartition(".")[2].isupper()


@pytest.mark.parametrize(
    "code",
    [
        "sys.stdout.write(text)",
        "sys.stderr.writelines(lines)",
        "sys.stdout.buffer.write(text)",
        "out.write(text)",
        "print(text)",
        "typer.echo(text)",
        "traceback.print_exc()",
        "os.write(1, text)",
        "from rich.console import Console",
    ],
)
def test_a_way_beside_the_door_is_noticed(code: str) -> None:
    assert list(beside_the_door(ast.parse(code)))


@pytest.mark.parametrize("code", ['f"type kubectl uncordon {node}"', 'f"{a}; kubectl {verb}"', 'f"nvidia-smi {flags}"'])
def test_a_value_in_a_command_is_noticed(code: str) -> None:
    assert list(unquoted(ast.parse(code)))


def test_nothing_of_both_programs_prints_but_through_the_door() -> None:
    of = {path: list(beside_the_door(tree)) for path, tree in sources().items()}
    assert {path: found for path, found in of.items() if found and path not in DOOR} == {}
    assert all(of[path] for path in DOOR - {"scheduler/process/logs.py"}), "each of them is a door"


def test_every_command_with_a_value_in_it_is_quoted() -> None:
    of = {path: list(unquoted(tree)) for path, tree in sources().items()}
    assert {path: found for path, found in of.items() if found} == {}
