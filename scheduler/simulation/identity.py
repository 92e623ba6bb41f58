"""What tells one object from every other: uid and creation time; and objects out of manifests."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from scheduler.kube.objects import ObjectMeta
from scheduler.simulation.defaults import timestamp

Decoded = TypeVar("Decoded", bound=msgspec.Struct)
Value = TypeVar("Value")


class Identity:
    """Hands out uids: the same ones in every run. now_s: Unix seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._made = 0

    def given_to(self, metadata: ObjectMeta) -> ObjectMeta:
        """The head of a new object; uid and creation time that it brings along are kept, so that traces replay."""
        self._made += 1
        return replace(
            metadata,
            uid=metadata.uid or f"{self._made:08x}-0000-4000-8000-000000000000",
            creation_timestamp=metadata.creation_timestamp or timestamp(self.now_s()),
        )


def decoded(source: Decoded | Mapping[str, Any], kind: type[Decoded]) -> Decoded:
    """The object itself, or what a Kubernetes manifest says; raises msgspec.ValidationError."""
    if isinstance(source, kind):
        return source
    # By way of the wire form: msgspec builds the parts that stay raw from bytes only.
    return msgspec.json.decode(msgspec.json.encode(source), type=kind)


def merge_patched(old: Mapping[str, Value], patch: Mapping[str, Value | None]) -> dict[str, Value]:
    """A JSON merge patch of a flat object: None takes a key away."""
    new = {key: value for key, value in old.items() if key not in patch}
    return new | {key: value for key, value in patch.items() if value is not None}
