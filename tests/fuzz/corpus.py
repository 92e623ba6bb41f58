"""The objects that cases are made of, as a real API server has delivered them (Kubernetes 1.36), without managedFields.

`objects.json`: kind -> objects. `checkpoint.json`: of a real kubelet, with pods of the device plugin.
"""

import functools
import json
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent / "corpus"


@functools.cache
def objects() -> dict[str, list[dict[str, Any]]]:
    """By the name of the kind."""
    found: dict[str, list[dict[str, Any]]] = json.loads((_FOLDER / "objects.json").read_text(encoding="utf-8"))
    return found


@functools.cache
def document(name: str) -> Any:  # noqa: ANN401 - JSON
    """Another file of the corpus."""
    return json.loads((_FOLDER / name).read_text(encoding="utf-8"))
