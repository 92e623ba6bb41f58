"""The manifest for krew."""

import re

import yaml

from tests.support.documents.krew import Archive, krew_manifest
from tests.support.repository import ROOT


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
