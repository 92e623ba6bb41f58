"""The table of a pod's fields is complete for the API server that is run here."""

import pytest

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin
from tests.support.documents.pod_fields import TABLE
from tests.support.repository import ROOT

DOCUMENT = ROOT / "docs" / "compatibility.md"


@pytest.fixture
async def schemas(admin: Admin) -> dict[str, set[str]]:
    """Fields by schema, as the API server describes itself."""
    document = (await admin.get("/openapi/v3/api/v1")).body
    prefix = "io.k8s.api.core.v1."
    found = document["components"]["schemas"]
    return {name.removeprefix(prefix): set(schema.get("properties", {})) for name, schema in found.items()}


@pytest.mark.parametrize("schema", TABLE)
async def test_every_field_of_the_server_is_in_the_table_and_no_other(
    schemas: dict[str, set[str]], schema: str
) -> None:
    minor = int(pinned.kubernetes_version().split(".")[1])
    ours = {field.name for field in TABLE[schema] if field.exists_in(minor)}

    assert schemas[schema] - ours == set(), f"fields of {schema} without a verdict in pod_fields.py"
    assert ours - schemas[schema] == set(), f"fields that {schema} has no more"


def test_the_document_names_the_version_that_is_run() -> None:
    version = pinned.kubernetes_version().removeprefix("v")

    assert f"| {version} |" in DOCUMENT.read_text(encoding="utf-8")
