"""Fixtures of the tests of the chart.

helm                 without a cluster
helm_there           on the cluster `controlled`
prometheus_operator  the kinds of the Prometheus Operator are served there, by nobody
"""

import asyncio
from typing import Final

import pytest

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.chart import helm as chart
from e2e.deploy.chart.helm import Helm
from e2e.deploy.other_projects import custom_resources

# The files that take longest, the longest first.
_LONGEST: Final = ("test_images", "test_page", "test_mishaps", "test_way_back", "test_site", "test_release")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return chart.built(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def helm_there(tmp_path_factory: pytest.TempPathFactory, controlled: ControlPlane) -> Helm:
    return chart.built(tmp_path_factory.mktemp("helm-there"), controlled.kubeconfig_path())


@pytest.fixture(scope="session")
def prometheus_operator(controlled: ControlPlane) -> None:
    async def install() -> None:
        async with Admin(controlled.access()) as admin:
            await custom_resources.install(admin, custom_resources.PROMETHEUS_OPERATOR)

    asyncio.run(install())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest: several processes end at about the same time (--dist=loadfile)."""
    order = {name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
