"""What `deploy/optional/page.yaml` grants is what the page asks."""

import yaml

from scheduler.tools.page.access import PATH
from tests.support.repository import ROOT

FILE = ROOT / "deploy" / "optional" / "page.yaml"


def test_the_scheduler_may_ask_for_both_reviews_and_nothing_else() -> None:
    documents = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(FILE.read_text())}
    asks = documents["ClusterRole", "gpushare-scheduler-page"]["rules"]
    granted = {(verb, resource) for rule in asks for verb in rule["verbs"] for resource in rule["resources"]}
    assert granted == {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
    bound = documents["ClusterRoleBinding", "gpushare-scheduler-page"]
    assert [one["name"] for one in bound["subjects"]] == ["gpushare-scheduler"]
    assert bound["roleRef"]["name"] == "gpushare-scheduler-page"


def test_who_looks_needs_the_url_that_is_asked_about() -> None:
    documents = list(yaml.safe_load_all(FILE.read_text()))
    (viewer,) = (one for one in documents if one["metadata"]["name"] == "gpushare-page-viewer")
    assert viewer["rules"] == [{"nonResourceURLs": [PATH], "verbs": ["get"]}]
