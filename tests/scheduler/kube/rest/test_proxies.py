import pytest

from scheduler.kube.rest.proxies import from_environment

URL = "https://10.1.2.3:6443"
PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        pytest.param({}, URL, None, id="none"),
        pytest.param({"HTTPS_PROXY": PROXY}, URL, PROXY, id="https"),
        pytest.param({"https_proxy": PROXY}, URL, PROXY, id="small letters"),
        pytest.param({"HTTP_PROXY": PROXY}, URL, None, id="for http only"),
        pytest.param({"HTTP_PROXY": PROXY}, "http://api", PROXY, id="http"),
        pytest.param({"ALL_PROXY": PROXY}, URL, PROXY, id="all"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, URL, None, id="no host"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "a, 10.1.2.3"}, URL, None, id="not this host"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, URL, None, id="not this network"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.2.0.0/16"}, URL, PROXY, id="not another network"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": ".corp"}, "https://api.corp", None, id="not this domain"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "orp"}, "https://api.corp", PROXY, id="not half a name"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": ","}, URL, PROXY, id="empty entries"),
    ],
)
def test_the_proxy_is_the_one_that_the_environment_names(
    environment: dict[str, str], url: str, proxy: str | None
) -> None:
    assert from_environment(environment, url) == proxy
