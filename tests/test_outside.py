"""Addresses that clients name: what is refused, and what is fetched."""

import http.server
import socket
import threading

import pytest

from atp import outside


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.path = self.path
        name, _, rest = self.path[1:].partition("/")
        if name == "to":
            self.send_response(302)
            self.send_header("Location", f"http://{rest}" if "." in rest else f"/{rest}")
            self.end_headers()
            return
        self.send_response(int(name) if name.isdecimal() else 200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "10" if name == "cut" else "5")
        self.end_headers()
        self.wfile.write(b"found")

    def do_POST(self):
        self.server.posted = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(settings):
    """A server of this host, which the project trusts."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    settings.ATP = {**settings.ATP, "OGC_HOSTS": [server.url, "*.example.org", "localhost"]}
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(address):
    return outside.fetch(address, most=100, seconds=10)


def test_trusted_origin_is_fetched_and_posted_to(server):
    assert fetch(f"{server.url}/x") == (b"found", "text/plain")
    assert fetch(f"{server.url}/to/x") == (b"found", "text/plain")
    assert outside.post(f"{server.url}/x", b"body", "text/plain") == 204
    assert server.posted == b"body"


@pytest.mark.parametrize(
    "address",
    [
        "ftp://a.example.org/x",
        "file:///etc/passwd",
        "https:///x",
        "https://a.example.org:8443/x",
        "http://a.example.org/x",
        "https://user:word@a.example.org/x",
        "https://a.example.com/x",
        "https://a.example.org.example.com/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://a.example.org@127.0.0.1/x",
        "https://[bad/x",
        "https://a..example.org/x",
        "https://.example.org/x",
        f"https://{'a' * 64}.example.org/x",
        f"https://{'a.' * 130}example.org/x",
        "https://a\x00.example.org/x",
        "https://a b.example.org/x",
        "https://a%00.example.org/x",
        "https://a.example.org:0/x",
        "https://a.example.org:99999/x",
        "x",
    ],
)
def test_address_is_refused_by_its_name(server, address):
    with pytest.raises(outside.Refused):
        outside.check(address)


def test_name_of_a_private_address_is_refused(server):
    with pytest.raises(outside.Refused, match="private address"):
        fetch("https://localhost/x")


def test_redirect_to_a_host_that_is_not_allowed_is_refused(server):
    with pytest.raises(outside.Refused):
        fetch(f"{server.url}/to/127.0.0.1:1/x")


def test_redirects_have_an_end(server):
    with pytest.raises(outside.Refused, match="redirects more"):
        fetch(f"{server.url}/{'to/' * 9}x")


def test_what_is_too_large_is_refused(server):
    with pytest.raises(outside.Refused, match="larger than 4 bytes"):
        outside.fetch(f"{server.url}/x", most=4, seconds=10)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("404", outside.Refused),
        ("429", outside.Failed),
        ("500", outside.Failed),
        ("502", outside.Failed),
        ("503", outside.Failed),
    ],
)
def test_answer_that_is_no_success_is_told(server, path, error):
    with pytest.raises(error, match=path):
        fetch(f"{server.url}/{path}")


def test_path_with_any_characters_is_quoted(server):
    assert fetch(f"{server.url}/x/ü ä?name=a b&other=%20\x01")[0] == b"found"
    assert server.path == "/x/%C3%BC%20%C3%A4?name=a%20b&other=%20%01"


def test_answer_that_is_cut_is_no_answer(server):
    with pytest.raises(outside.Failed):
        fetch(f"{server.url}/cut")


def test_host_that_does_not_answer_is_told(server, settings):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    settings.ATP = {**settings.ATP, "OGC_HOSTS": [url]}
    with pytest.raises(outside.Failed, match="cannot be reached"):
        fetch(url)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("9.9.9.9", True),
        ("2620:fe::fe", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::909:909", True),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::909:909", False),
        ("2002:7f00:1::", False),
        ("2002:a00:1::1", False),
        ("2002:909:909::1", True),
        ("2002:a00:1::5efe:909:909", False),
        ("2620:fe::5efe:a00:1", False),
        ("2620:fe::200:5efe:c0a8:1", False),
        ("fe80::5efe:909:909", False),
        ("fec0::1", False),
        ("::10.0.0.1", False),
        ("::9.9.9.9", False),
        ("::ffff:0:10.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("::ffff:9.9.9.9", True),
        ("2001:db8::1", False),
        ("100::1", False),
        ("5f00::1", False),
        ("ff0e::1", False),
        ("::", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
    ],
)
def test_public_addresses_are_known(address, expected):
    assert outside.is_public(address) is expected
