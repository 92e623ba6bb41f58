"""Fixtures of the tests of the chart.

helm                 without a cluster
helm_there           on the cluster `controlled`
prometheus_operator  the kinds of the Prometheus Operator are served there, by nobody
"""

import asyncio

import pytest

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.chart import helm as chart
from e2e.deploy.chart.helm import Helm
from e2e.deploy.other_projects import custom_resources


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
