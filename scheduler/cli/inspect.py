"""`kubectl inspect gpushare [-d] [node ...]`: who holds how much of which card.

The default output is the original's, byte for byte; `-o json`, `--context` and `--kubeconfig` only add. Read through
kubeconfig (`KUBECONFIG`, or `~/.kube/config`) from any cluster that shares GPUs by memory, ours or the original's.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from scheduler.inspect.tables import details, summary
from scheduler.inspect.view import Node, NodeView, Pod, view

_PAGE: Final = 500


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] = []
    metadata: dict[str, Any] = {}


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Exit code 1, with one line, when the cluster cannot be read."""
    chosen = _parser().parse_intermixed_args(arguments)
    try:
        nodes = _read(chosen)
    except Exception as error:  # noqa: BLE001 - whatever the library raises, the original says it in one line
        sys.stdout.write(f"Failed due to {_first_line(error)}\n")
        raise SystemExit(1) from None
    if chosen.output == "json":
        sys.stdout.write(as_json(nodes))
    else:
        sys.stdout.write(details(nodes) if chosen.details else summary(nodes))


def as_json(nodes: Sequence[NodeView]) -> str:
    """The view as JSON; the shape is documented in docs/inspect.md."""
    document = {
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "totalUnits": node.total,
                "allocatedUnits": node.allocated,
                "pendingUnits": node.pending,
                "cards": [
                    {
                        "index": card.index,
                        "uuid": card.uuid,
                        "health": card.health,
                        "totalUnits": card.total,
                        "allocatedUnits": card.allocated,
                        "freeUnits": card.total - card.allocated,
                    }
                    for card in node.cards
                ],
                "pods": [
                    {
                        "namespace": holder.namespace,
                        "name": holder.name,
                        "cards": {str(index): units for index, units in sorted(holder.units.items()) if index >= 0},
                        "pendingUnits": holder.pending,
                    }
                    for holder in node.holders
                ],
            }
            for node in nodes
        ]
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl inspect gpushare", description="Who holds how much of which card.")
    parser.add_argument("nodes", nargs="*", metavar="node", help="only these nodes (default: all with GPU memory)")
    parser.add_argument("-d", dest="details", action="store_true", help="one line per pod")
    parser.add_argument("-o", dest="output", choices=("json",), help="for programs")
    parser.add_argument("--context", help="of the kubeconfig (default: its current one)")
    parser.add_argument("--kubeconfig", help="file (default: KUBECONFIG, then ~/.kube/config)")
    return parser


def _read(chosen: argparse.Namespace) -> tuple[NodeView, ...]:
    from kubernetes import client, config  # noqa: PLC0415 - slow to import, and `--help` does not need it

    configuration = client.Configuration()
    config.load_kube_config(chosen.kubeconfig, chosen.context, client_configuration=configuration)
    with client.ApiClient(configuration) as api:
        nodes = [msgspec.json.decode(item, type=Node) for item in _items(api, "/api/v1/nodes")]
        missing = set(chosen.nodes) - {node.metadata.name for node in nodes}
        if missing:
            message = f'nodes "{min(missing)}" not found'
            raise LookupError(message)
        pods = [msgspec.json.decode(item, type=Pod) for item in _items(api, "/api/v1/pods")]
    return view(nodes, pods, only=frozenset(chosen.nodes))


def _items(api: Any, path: str) -> list[msgspec.Raw]:  # noqa: ANN401 - the library's ApiClient is untyped
    items: list[msgspec.Raw] = []
    more = ""
    while True:
        query = [("limit", str(_PAGE)), *([("continue", more)] if more else [])]
        request = api.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
        answer = api.call_api(*request)
        body = answer.read()
        if answer.status != 200:  # noqa: PLR2004 - OK
            message = f"{path}: {answer.status} {answer.reason}: {body.decode(errors='replace')[:300]}"
            raise LookupError(message)
        page = msgspec.json.decode(body, type=_Page)
        items += page.items
        more = page.metadata.get("continue") or ""
        if not more:
            return items


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


if __name__ == "__main__":
    main()
