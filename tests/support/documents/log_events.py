"""The events that the programs log, with their levels, read from the code. Pure.

An event is a constant, so it appears in the code as text:

    log.info("pod.bound", …)                          a call of a logger
    log.info("a" if won else "b"), event = …          a choice of constants, or a name assigned to one
    say = log.warning if … else log.info              a name for a logger's methods
    Line("warning", "kubernetes.version", …)          a level and an event as texts, logged elsewhere
    Problem(…, happened=_CARD_HAS_FAILED)             logged as a warning by scheduler/dispatch/problems.py

Any other argument of a logger is `UNKNOWN`.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LEVELS: Final = frozenset({"debug", "info", "warning", "error"})
UNKNOWN: Final = "?"
LOGGERS: Final = frozenset({"log", "logger"})
_HAPPENED: Final = "happened"


@dataclass(frozen=True, slots=True)
class Module:
    """A module's logging. names: values assigned to each of its names, anywhere."""

    tree: ast.Module
    names: Mapping[str, ast.expr] = field(default_factory=dict)


def events(root: Path) -> dict[str, frozenset[str]]:
    """Return event -> levels for every module below. `UNKNOWN: argument` if the event cannot be determined."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for event, level in of_text(path.read_text(encoding="utf-8")):
            found.setdefault(event, set()).add(level)
    return {event: frozenset(levels) for event, levels in found.items()}


def of_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield (event, level) of each call in a module's text."""
    tree = ast.parse(text)
    module = Module(tree, dict(_given(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _said(module, node)


def _given(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _said(module: Module, call: ast.Call) -> Iterator[tuple[str, str]]:
    levels = _levels(module, call.func)
    match call.args:
        case [first, *_] if levels:
            yield from ((event, level) for event in _texts(module, first) for level in levels)
        case [ast.Constant(value=str(level)), ast.Constant(value=str(event)), *_] if level in LEVELS:
            yield event, level
    for keyword in call.keywords:
        if keyword.arg == _HAPPENED:
            yield from ((event, "warning") for event in _texts(module, keyword.value))


def _levels(module: Module, called: ast.expr) -> list[str]:
    """Return the levels of a call of this; empty if it is not a logger."""
    match called:
        case ast.Attribute(value=ast.Name(id=name), attr=level) if name in LOGGERS and level in LEVELS:
            return [level]
        case ast.Name(id=name) if isinstance(chosen := module.names.get(name), ast.IfExp):
            return [level for branch in (chosen.body, chosen.orelse) for level in _levels(module, branch)]
    return []


def _texts(module: Module, given: ast.expr) -> list[str]:
    match given:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=other):
            return [*_texts(module, body), *_texts(module, other)]
        case ast.Name(id=name) if name in module.names:
            return _texts(module, module.names[name])
    return [f"{UNKNOWN}: {ast.unparse(given)}"]
