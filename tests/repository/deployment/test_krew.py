"""The manifest for krew."""

import re

import pytest
import yaml

from tests.support.documents.krew import Archive, krew_manifest, semantic
from tests.support.repository import ROOT


@pytest.mark.parametrize(
    ("version", "said"),
    [("0.1.0.dev0", "v0.1.0-dev.0"), ("1.2.3", "v1.2.3"), ("1.0.0rc2", "v1.0.0-rc.2"), ("1.0.0b1", "v1.0.0-b.1")],
)
def test_a_version_has_the_form_that_krew_wants(version: str, said: str) -> None:
    assert semantic(version) == said


def test_a_version_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.0 is no version"):
        semantic("1.0")


def test_the_manifest_has_what_krew_requires() -> None:
    document = yaml.safe_load((ROOT / "deploy/krew/gpushare.yaml").read_text(encoding="utf-8"))
    assert document["metadata"]["name"] == "gpushare"
    spec = document["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[a-z]+\.\d+)?", spec["version"])
    assert len(spec["shortDescription"]) <= 50
    assert len({tuple(one["selector"]["matchLabels"].values()) for one in spec["platforms"]}) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", one["sha256"]) for one in spec["platforms"])
    assert {one["bin"] for one in spec["platforms"]} == {"kubectl-gpushare"}


def test_a_release_says_where_its_archives_are() -> None:
    archive = Archive("https://example.com/a.tar.gz", "ab" * 32)
    (first, *_) = yaml.safe_load(krew_manifest({("linux", "amd64"): archive}))["spec"]["platforms"]
    assert (first["uri"], first["sha256"]) == archive
