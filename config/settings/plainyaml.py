"""YAML text as plain values: mappings with text keys, lists, text, numbers, booleans, None. Pure.

As in Kubernetes, a mapping with a duplicate key is rejected, a key without a value (for example, because its lines are
commented out) counts as absent, and a date stays text.
"""

from collections.abc import Hashable
from typing import Final

import yaml

try:
    from yaml import CSafeLoader as _Loader  # twelve times as fast, if PyYAML was built with it
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]  # the same for what is used here

_MERGE: Final = "tag:yaml.org,2002:merge"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
# The C parser recurses, and a stack overflow ends the process. No Kubernetes object is a fifth as deep.
_DEEPEST: Final = 200
# A value takes at least one character, unless an anchor repeats it: nine of nine of nine ... fills any memory.
_MOST_REPEATED: Final = 16
_ALWAYS: Final = 4096


class DocumentError(ValueError):
    """Text that is not YAML, or uses unsupported YAML; the message says where."""


class _PlainLoader(_Loader):
    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own attribute, read only)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def descend_resolver(self, current_node: yaml.Node | None, current_index: object) -> None:
        """Called by yaml before each node."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DocumentError(f"has more than {_DEEPEST} levels of nesting")
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        """Runs after each node."""
        self._depth -= 1
        super().ascend_resolver()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002  (PyYAML's signature)
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise DocumentError(f"line {line}: key {key!r} is not a string; write it in quotes")
            if key in seen:
                raise DocumentError(f"line {line}: key {key} appears twice in the mapping")
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse(text: str) -> list[object]:
    """Return every document in `text`, in order; empty ones are left out. Raises DocumentError."""
    most = _ALWAYS + _MOST_REPEATED * len(text)
    try:
        found = [document for document in yaml.load_all(text, _PlainLoader) if document is not None]
    except DocumentError:
        raise
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise DocumentError(f"{line}{error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DocumentError(f"is not YAML: {' '.join(str(error).split())[:200]}") from error
    if _size(found, most) > most:
        raise DocumentError(f"expands to more than {most} values through its anchors")
    return [_without_nulls(document) for document in found]


def _size(value: object, most: int) -> int:
    """Return the number of values, with repeated ones counted each time; stops above `most`."""
    count, left = 0, [value]
    while left and count <= most:
        one = left.pop()
        count += 1
        if isinstance(one, list | dict):
            left.extend(one.values() if isinstance(one, dict) else one)
    return count


def _without_nulls(value: object) -> object:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value
