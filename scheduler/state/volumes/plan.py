"""What a pod's claims get on the node that it goes to."""

from collections.abc import Iterator

import msgspec

from scheduler.pods.pod_volumes import ClaimKey


class VolumePlan(msgspec.Struct, frozen=True):
    """taken: volumes that are there, each with its claim. made: claims for which a volume is to be made.

    timeout_s: how long the pod waits for them at most, > 0.
    """

    node: str
    taken: tuple[tuple[str, ClaimKey], ...]
    made: tuple[ClaimKey, ...]
    timeout_s: float

    def __iter__(self) -> Iterator[tuple[ClaimKey, str]]:
        """Each claim with its volume, "" for one that is to be made."""
        for volume, claim in self.taken:
            yield claim, volume
        for claim in self.made:
            yield claim, ""
