"""Recognizable secrets in the places where people keep them, and the search for them in a program's output.

Each place has a different text, so that a hit identifies it. The search covers the plain text and its base64 form at
any offset in a longer text.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Final

from e2e.control_plane.admin import Json
from tests.fuzz.planted import PLANTED

_AROUND: Final = 60


def secret(place: str) -> str:
    """Return a secret that names the place where it was planted. place: letters only."""
    return f"{PLANTED}{place}"


def in_pod(manifest: Json) -> Json:
    """Return the pod with secrets in environment, command, arguments, foreign annotations, and a Secret volume."""
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
    """Return the Secret that `in_pod` refers to."""
    return {"metadata": {"name": "key"}, "stringData": {"key": secret("secret")}}


def in_node() -> dict[str, str]:
    """Return foreign annotations with secrets."""
    return {"example.com/bmc-password": secret("node")}


def hits(said: Mapping[str, str], also: Mapping[str, str]) -> list[str]:
    """Return the leaks found, one line each with the surrounding text. also: other secrets -> description."""
    looked_for = {PLANTED: "planted", **also}
    forms = {form: what for text, what in looked_for.items() for form in (text, *_in_base64(text))}
    return [
        f"{where}: {what}: {text[max(0, at - _AROUND) : at + len(form) + _AROUND]!r}"
        for where, text in said.items()
        for form, what in forms.items()
        if (at := text.find(form)) >= 0
    ]


def _in_base64(text: str) -> Iterator[str]:
    """Yield the three base64 forms of the text within a longer one, without characters that depend on the rest."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + text.encode()).decode()
        first, last = -(-before * 8 // 6), (before + len(text.encode())) * 8 // 6
        yield encoded[first:last]
