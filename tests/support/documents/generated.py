"""The generated parts of the documents, and their generators: `make docs` writes them.

A new generated document is a line of `GENERATED`; `tests/repository/documents/test_documents.py` then keeps it current.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scheduler.plugins.registry import describe
from tests.differential.document import differences_markdown
from tests.support.documents import pod_fields
from tests.support.documents.configuration_document import configuration_markdown
from tests.support.documents.helm_values import helm_values_markdown
from tests.support.documents.krew import krew_manifest
from tests.support.documents.kubectl_document import kubectl_markdown
from tests.support.documents.metrics_document import metrics_markdown
from tests.support.documents.node_configuration_document import isolation_markdown, node_markdown
from tests.support.documents.plugin_reference import plugins_markdown
from tests.support.repository import ROOT

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "docs/configuration.md": lambda: configuration_markdown(describe()),
    "docs/configuration-node.md": node_markdown,
    "docs/isolation-mechanism.md": isolation_markdown,
    "docs/develop/pod-fields.md": pod_fields.markdown,
    "docs/metrics.md": metrics_markdown,
    "docs/evidence/kube-scheduler.md": differences_markdown,
    "docs/helm-values.md": helm_values_markdown,
    "docs/kubectl.md": kubectl_markdown,
    "deploy/krew/gpushare.yaml": krew_manifest,
    "scheduler/plugins/README.md": plugins_markdown,
}
"""By file: its text; of a file with a line that begins with `FROM_HERE`, the text below that line."""

FROM_HERE: Final = "<!-- From here on written by `make docs`"


def current(path: Path, generate: Callable[[], str]) -> str:
    """Return the file's current content: the handwritten part is kept."""
    committed = path.read_text(encoding="utf-8") if path.exists() else ""
    by_hand, marker, below = committed.partition(FROM_HERE)
    if not marker:
        return generate()
    rest_of_the_line = below.partition("\n")[0]
    return f"{by_hand}{marker}{rest_of_the_line}\n\n{generate()}"


def main() -> None:
    """Write every generated document."""
    for name, generate in GENERATED.items():
        path = ROOT / name
        path.write_text(current(path, generate), encoding="utf-8")


if __name__ == "__main__":
    main()
