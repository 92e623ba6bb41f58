"""The pods of the node as the API server's watch shows them, and waiting for them to change."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted, Kind, ListEnds, WatchEvent


def kind_of(node: str) -> Kind[objects.PodObject]:
    """What is watched: pods bound to `node` that have not finished."""
    selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    return Kind("pods", objects.PodObject, "/api/v1/pods", selector)


@dataclass(slots=True)
class OwnPods:
    """By uid. `changed` wakes everybody who waits when anything is different. complete: a whole list has been seen."""

    complete: bool = False
    _by_uid: dict[str, objects.PodObject] = field(default_factory=dict)
    _waiting: list["asyncio.Future[None]"] = field(default_factory=list)

    def apply(self, batch: Sequence[WatchEvent[objects.PodObject]]) -> None:
        """Take a batch of the watch."""
        for event in batch:
            match event:
                case Changed(pod):
                    self._by_uid[pod.metadata.uid] = pod
                case Deleted(pod):
                    self._by_uid.pop(pod.metadata.uid, None)
                case ListEnds():
                    self.complete = True
                case _:
                    pass
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def __iter__(self) -> Iterator[objects.PodObject]:
        return iter(tuple(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> objects.PodObject | None:
        """The pod with this uid."""
        return self._by_uid.get(uid)

    async def change(self) -> None:
        """Return after the next batch."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        await one
