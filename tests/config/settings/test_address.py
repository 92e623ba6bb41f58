import pytest

from config.settings.schema import checked_address, host_and_port


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("10.0.0.1:10262", ("10.0.0.1", 10262)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("", 80)),
        ("node-1:65535", ("node-1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(checked_address(text)) == parts


@pytest.mark.parametrize("text", ["10262", "::1:80", "h:65536", "h:", "h:1 ", "a b:1", "h:-1"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        checked_address(text)
