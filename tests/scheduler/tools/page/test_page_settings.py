"""Where the page may listen."""

import pytest
from pydantic import ValidationError

from config.settings.page import PageSection, is_loopback


def test_it_is_off_and_on_loopback_unless_somebody_says_otherwise() -> None:
    assert (PageSection().enabled, PageSection().listen_address) == (False, ("127.0.0.1", 10264))


@pytest.mark.parametrize("listen", [":10264", "0.0.0.0:1", "[::]:1", "10.1.2.3:1", "host.example:1"])
def test_a_token_does_not_go_over_the_network_unencrypted(listen: str) -> None:
    with pytest.raises(ValidationError, match="expected a loopback address"):
        PageSection(listen=listen)
    PageSection(listen=listen, cert_file="tls.crt", key_file="tls.key")


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:0"])
def test_loopback_needs_no_certificate(listen: str) -> None:
    assert is_loopback(PageSection(listen=listen).listen_address[0])


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ValidationError, match="both certFile and keyFile"):
        PageSection(cert_file="tls.crt")
