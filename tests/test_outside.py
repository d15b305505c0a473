"""Addresses that clients name: what is refused, and what is fetched."""

import pytest

from atp import outside

from .receiver import receiver


@pytest.fixture
def server(settings):
    """A server of this host, which the project trusts."""
    with receiver("") as server:
        hosts = [server.origin, "*.example.org", "localhost"]
        settings.ATP = {**settings.ATP, "OGC_HOSTS": hosts}
        yield server


def fetch(address, most=100):
    return outside.fetch(address, most=most, seconds=10)


def test_trusted_origin_is_fetched_and_posted_to(server):
    server.answers = [200, (302, {"location": "/x"}), 200]
    for _ in range(2):
        assert fetch(server.url) == (b"found", "text/plain")
    assert outside.post(server.url, b"body", "text/plain") == 204
    assert server.received[-1].body == b"body"


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://a.example.org/x", "file:///etc/passwd", "https:///x", "x"),
        *("http://a.example.org/x", "https://user:word@a.example.org/x"),
        *(f"https://a.example.org:{port}/x" for port in (8443, 0, 99999)),
        *("https://a.example.com/x", "https://a.example.org.example.com/x"),
        *("https://127.0.0.1/x", "https://[::1]/x", "https://a.example.org@127.0.0.1/x"),
        *("https://[bad/x", "https://a..example.org/x", "https://.example.org/x"),
        *(f"https://{name}example.org/x" for name in (f"{'a' * 64}.", "a." * 130)),
        *(f"https://a{odd}.example.org/x" for odd in ("\x00", " b", "%00")),
    ],
)
def test_address_is_refused_by_its_name(server, address):
    with pytest.raises(outside.Refused):
        outside.check(address)


def test_name_of_a_private_address_is_refused(server):
    with pytest.raises(outside.Refused, match="private address"):
        fetch("https://localhost/x")


def test_redirects_have_an_end_and_lead_to_allowed_hosts_only(server):
    server.answers = [(302, {"location": "http://127.0.0.1:1/x"})]
    with pytest.raises(outside.Refused, match="its usual port"):
        fetch(server.url)
    server.answers = [(302, {"location": "/x"})] * 9
    with pytest.raises(outside.Refused, match="redirects more"):
        fetch(server.url)


def test_what_is_too_large_is_refused(server):
    server.answers = [200]
    with pytest.raises(outside.Refused, match="larger than 4 bytes"):
        fetch(server.url, most=4)


def test_answer_that_is_no_success_is_told(server):
    statuses = {404: outside.Refused, **dict.fromkeys((429, 500, 502, 503), outside.Failed)}
    server.answers = [*statuses]
    for status, error in statuses.items():
        with pytest.raises(error, match=str(status)):
            fetch(server.url)


def test_path_with_any_characters_is_quoted(server):
    server.answers = [200]
    fetch(f"{server.url}/x/ü ä?name=a b&other=%20\x01")
    assert server.received[-1].path == "/hooks/x/%C3%BC%20%C3%A4?name=a%20b&other=%20%01"


def test_cut_answer_and_silent_host_fail_the_request(server):
    server.answers = [(200, {"content-length": "10"})]
    with pytest.raises(outside.Failed):
        fetch(server.url)
    server.down()
    with pytest.raises(outside.Failed, match="cannot be reached"):
        fetch(server.url)


PUBLIC = "9.9.9.9 2620:fe::fe 64:ff9b::909:909 2002:909:909::1 ::ffff:9.9.9.9"
PRIVATE = """
    10.0.0.1 127.0.0.1 169.254.169.254 100.64.0.1 224.0.0.1 0.0.0.0 240.0.0.1 255.255.255.255
    :: ::1 fe80::1%eth0 fd00::1 fec0::1 2001:db8::1 100::1 5f00::1 ff0e::1
    ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:0:10.0.0.1 ::10.0.0.1 ::9.9.9.9
    64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::909:909 2002:7f00:1:: 2002:a00:1::1
    2002:a00:1::5efe:909:909 2620:fe::5efe:a00:1 2620:fe::200:5efe:c0a8:1 fe80::5efe:909:909
    2001:0:4136:e378:8000:63bf:3fff:fdd2
"""


def test_public_addresses_are_known():
    for addresses, expected in ((PUBLIC, True), (PRIVATE, False)):
        for address in addresses.split():
            assert outside.is_public(address) is expected, address
