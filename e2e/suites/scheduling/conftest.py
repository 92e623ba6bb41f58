"""kube-scheduler beside ours on the cluster of the worker."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.control_plane.cluster import ControlPlane

_CONFIGURATION: Final = {"clientConnection": {"qps": 5000, "burst": 5000}, "podMaxBackoffSeconds": 2}


@pytest.fixture(scope="module")
def kube_scheduler(control_plane: ControlPlane) -> Iterator[None]:
    child = control_plane.start_scheduler(_CONFIGURATION)
    yield
    child.stop()
