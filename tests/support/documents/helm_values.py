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

For operators who install the [chart](../deploy/README.md): every value with its type, its default and its meaning. Set
values with `--values FILE` or `--set NAME=VALUE`. The chart rejects a value that is not listed here and names it.
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


def _type(schema: Mapping[str, Any], path: str) -> str:
    """Return the type of a value from its schema: a JSON type or the allowed values."""
    for key in path.split("."):
        schema = schema["properties"][key]
    if "enum" in schema:
        return ", ".join(f"`{each}`" if each else "empty" for each in schema["enum"])
    alternatives = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return " or ".join(str(each.get("type", "object")) for each in alternatives)


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
            parts.append(
                f"\n## {value.path}\n{value.says}\n\n| value | type | default | meaning |\n|---|---|---|---|\n"
            )
        elif not value.section:
            kind, default = _type(schema, value.path), _default(defaults, value.path)
            parts.append(f"| `{value.path}` | {kind} | `{default}` | {value.says} |\n")
        elif value.says:
            parts.append(f"| `{value.path}` | | | {value.says} |\n")
    return "".join(parts)
