"""docs/helm-values.md: one table for each section of the values, from the comments of values.yaml and the schema."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.support.repository import ROOT

CHART: Final = ROOT / "deploy/chart/gpushare-scheduler"
# Values that the chart passes on unchanged: their keys have no rows.
WHOLE: Final = frozenset(
    {
        "scheduler.config",
        "scheduler.resources",
        "devicePlugin.resources",
        "devicePlugin.tolerations",
        "dashboard.labels",
    }
)
_KEY: Final = re.compile(r"^( *)([A-Za-z]\w*):(.*)$")

_INTRODUCTION: Final = """\
# Helm values

<!-- Written by `make docs` from values.yaml and values.schema.json: change those, not this file. -->

For operators who install the [chart](../deploy/README.md): every value, its default and its meaning. Set values with
`--values FILE` or `--set NAME=VALUE`. If you set a value that is not listed here, the
chart rejects it with an error that names the value.
"""


@dataclass(frozen=True, slots=True)
class Value:
    """A key of values.yaml. path: from the root, with dots. says: its comment. section: whether it has keys itself."""

    path: str
    says: str
    section: bool


def _prose(comments: list[str]) -> str:
    """Return comment lines as one paragraph; indented lines are code."""
    return " ".join(f"`{line.strip()}`" if line.startswith("  ") else line.strip() for line in comments)


def values_in(text: str) -> Iterator[Value]:
    """Yield the keys of values.yaml with the comments above them, in the order of the file."""
    path: list[str] = []
    comments: list[str] = []
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("#"):
            comments.append(line.lstrip()[1:])
            continue
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            name = ".".join(path)
            if not any(name.startswith(f"{whole}.") for whole in WHOLE):
                yield Value(name, _prose([each[1:] for each in comments]), not key[3].strip() and name not in WHOLE)
        comments = []


def _allowed(schema: Mapping[str, Any], value: Value) -> str:
    """The allowed values if the schema lists them and the comment does not; otherwise the default shows the type."""
    for key in value.path.split("."):
        schema = schema["properties"][key]
    found = [each for each in schema.get("enum", ()) if each]
    if all(f"{each}:" in value.says for each in found):
        return ""
    return f" One of {', '.join(f'`{each}`' for each in found)}."


def _default(values: Mapping[str, Any], path: str) -> str:
    """Return the default of a value as YAML on one line."""
    found: Any = values
    for key in path.split("."):
        found = found[key]
    return yaml.safe_dump(found, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n").strip()


def helm_values_markdown() -> str:
    """Return the document: a heading and a table for each top-level key of values.yaml."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    schema, defaults = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")), yaml.safe_load(text)
    parts = [_INTRODUCTION]
    for value in values_in(text):
        if "." not in value.path:
            parts.append(f"\n## {value.path}\n{value.says}\n\n| value | default | meaning |\n|---|---|---|\n")
        elif not value.section:
            default, allowed = _default(defaults, value.path), _allowed(schema, value)
            parts.append(f"| `{value.path}` | `{default}` | {value.says}{allowed} |\n")
        elif value.says:
            parts.append(f"| `{value.path}` | | {value.says} |\n")
    return "".join(parts)
