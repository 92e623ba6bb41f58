"""Volumes of a pod's claims on its chosen node."""

from collections.abc import Iterator

import msgspec

from scheduler.pods.pod_volumes import ClaimKey


class VolumePlan(msgspec.Struct, frozen=True):
    """Planned volumes. taken: existing volumes, each with its claim. made: claims for which a volume will be created.

    timeout_s: maximum time that the pod waits for them, > 0.
    """

    node: str
    taken: tuple[tuple[str, ClaimKey], ...]
    made: tuple[ClaimKey, ...]
    timeout_s: float

    def __iter__(self) -> Iterator[tuple[ClaimKey, str]]:
        """Each claim with its volume; "" for a volume to be created."""
        for volume, claim in self.taken:
            yield claim, volume
        for claim in self.made:
            yield claim, ""
