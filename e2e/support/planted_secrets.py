"""Secrets in the places where people keep them, each recognisable, and the search for them in what a program says.

Each place has a text of its own, so that a hit names it. It is looked for as it is, and in base64 wherever it may stand
in a longer text.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Final

from e2e.control_plane.admin import Json
from tests.fuzz.planted import PLANTED

_AROUND: Final = 60


def secret(place: str) -> str:
    """A secret that tells where it was planted. place: letters only."""
    return f"{PLANTED}{place}"


def in_pod(manifest: Json) -> Json:
    """The pod with secrets in environment, command, arguments, annotations of others, and a Secret volume."""
    applied = json.dumps({"data": {"password": secret("applied")}})
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": applied,
        "example.com/api-token": secret("annotation"),
    }
    meta, spec = manifest["metadata"], manifest["spec"]
    meta["annotations"] = {**meta.get("annotations", {}), **annotations}
    spec["volumes"] = [*spec.get("volumes", []), {"name": "key", "secret": {"secretName": "key", "optional": True}}]
    for kind in ("containers", "initContainers"):
        for one in spec.get(kind, []):
            referred = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "key", "optional": True}}}
            one["env"] = [{"name": "TOKEN", "value": secret("env")}, referred]
            one["envFrom"] = [{"secretRef": {"name": "key", "optional": True}}]
            one["volumeMounts"] = [{"name": "key", "mountPath": "/key"}]
            one["command"] = ["sh", "-c", f": {secret('command')}; {one['command'][-1] if one.get('command') else ''}"]
            one["args"] = ["--token", secret("args")]
    return manifest


def the_secret() -> Json:
    """What `in_pod` refers to."""
    return {"metadata": {"name": "key"}, "stringData": {"key": secret("secret")}}


def in_node() -> dict[str, str]:
    """Annotations of others."""
    return {"example.com/bmc-password": secret("node")}


def hits(said: Mapping[str, str], also: Mapping[str, str]) -> list[str]:
    """Where something was told, a line each with what stands around it. also: other secrets, and what they are."""
    looked_for = {PLANTED: "planted", **also}
    forms = {form: what for text, what in looked_for.items() for form in (text, *_in_base64(text))}
    return [
        f"{where}: {what}: {text[max(0, at - _AROUND) : at + len(form) + _AROUND]!r}"
        for where, text in said.items()
        for form, what in forms.items()
        if (at := text.find(form)) >= 0
    ]


def _in_base64(text: str) -> Iterator[str]:
    """The three ways in which it stands in something longer, without the characters that depend on what is around."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + text.encode()).decode()
        first, last = -(-before * 8 // 6), (before + len(text.encode())) * 8 // 6
        yield encoded[first:last]
