"""Sending one request to a target that answers slowly, in parts, endlessly or never."""

import os
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from atp import webhooks
from atp.conf import WebhookTarget
from atp.webhooks import NotDelivered

from ..helpers import wait_for

NOW = datetime(2026, 11, 24, 18, 21, 3, tzinfo=UTC)
DONE = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for each in (name, name.upper()):
            monkeypatch.delenv(each, raising=False)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(webhooks, "WITHIN", 0.2)


@contextmanager
def serving(talk):
    """Yield the port of a server that calls ``talk(connection)`` for each connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with suppress(OSError):  # the client has closed the connection
                talk(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def answering(*parts, then=None):
    """Return a function that reads a request and sends these parts, and one more endlessly."""

    def talk(connection):
        read_request(connection)
        for part in parts:
            connection.sendall(part)
        if then:
            endlessly(then)(connection)

    return talk


def read_request(connection):
    read = b""
    while not read.endswith(b"}}"):
        part = connection.recv(65536)
        if not part:
            break
        read += part
    return read


def endlessly(part):
    """Return a function that sends a part repeatedly until the client closes the connection."""

    def talk(connection):
        while True:
            connection.sendall(part)
            time.sleep(0.005)  # the target takes its time

    return talk


def send(port, *, scheme="http", body=b'{"data":{}}', host="127.0.0.1"):
    target = WebhookTarget("crm", f"{scheme}://{host}:{port}/hooks", (b"k" * 32,))
    return webhooks.send(target, "one", body, NOW)


def refused(port, **more):
    with pytest.raises(NotDelivered) as raised:
        send(port, **more)
    return raised.value


def test_success_responses_are_accepted_and_their_bodies_are_not_read():
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 \r\n\r\n"
    many = b"".join(b"X-%d: y\r\n" % each for each in range(5000))
    small_parts = [bytes([each]) for each in b"HTTP/1.0 201\nA: b\n\n"]
    for parts, status in (
        ([b"HTTP/1.1 100 Continue\r\n\r\n", interim, DONE], 204),
        ([b"HTTP/1.1 200 OK\r\n", many, b"\r\n"], 200),
        (small_parts, 201),
    ):
        with serving(answering(*parts)) as port:
            assert send(port) == status
    begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(answering(begin, then=b"1\r\nx\r\n")) as port:
        assert send(port) == 200


def test_an_error_describes_each_response_that_is_not_a_success():
    for answer, words in (
        (b"", "did not answer: it closed the connection"),
        (b"HTTP/1.1 200 OK\r\nA: b", "did not answer: it closed the connection"),
        (
            b"220 mail.example ESMTP\r\n\r\n",
            "did not answer: its answer is not an HTTP/1.1 response",
        ),
        (b"HTTP/1.1 500 \x1b[31mred\r\nRetry-After: 120\r\n\r\n", "answered 500 [31mred"),
        (b"HTTP/1.1 999 What\r\n\r\n", "answered 999 What"),
        (b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n", "answered 101 Switch"),
    ):
        with serving(answering(answer)) as port:
            error = refused(port)
        assert (str(error), error.after) == (f"crm {words}", None)

    def refuse(connection):
        """Answer before the body is read."""
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too large\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with serving(refuse) as port:
        assert str(refused(port, body=b"x" * 5_000_000)) == "crm answered 413 Too large"


@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X-More: header\r\n", b"x" * 4096]
)
def test_an_endless_response_head_is_abandoned_at_a_size_limit(part):
    """The worker gives up after a limited amount of reading, however fast the target is."""
    begin = b"" if part.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
    with serving(answering(begin, then=part * 10_000)) as port:
        assert "larger than 1 MiB" in str(refused(port))


@pytest.mark.slow
@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_dripping_target_is_abandoned_at_the_deadline(impatient, part):
    with serving(endlessly(part)) as port:
        assert str(refused(port)) in (
            "crm did not answer within 0 s",
            "crm did not answer: its answer is not an HTTP/1.1 response",
        )


def test_a_target_that_neither_reads_nor_sends_times_out(impatient, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "did not answer" in str(refused(port, body=b"x" * 50_000_000))
        monkeypatch.setattr(webhooks, "TIMEOUT", 0.1)
        assert str(refused(port)) == "crm did not answer for 0 s"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "number", "first", "rest"),
    # The first record of a TLS handshake never ends.
    [("http", 40, b"H", b"T"), ("https", 10, b"\x16", b"\x03")],
)
def test_dripping_deliveries_leave_no_threads_or_sockets(monkeypatch, scheme, number, first, rest):
    monkeypatch.setattr(webhooks, "WITHIN", 0.02)

    def talk(connection):
        connection.sendall(first)
        endlessly(rest)(connection)

    with serving(talk) as port:
        refused(port, scheme=scheme)
        # The server ends its first thread.
        wait_for(lambda: not any("process_request" in t.name for t in threading.enumerate()))
        before = _held()
        for _ in range(number):
            refused(port, scheme=scheme)
        wait_for(lambda: _held() <= before, what="as few threads and sockets as before")


def _held():
    """Return the number of threads and of open files of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def test_dns_lookups_of_one_host_share_a_thread(monkeypatch, impatient):
    """A thread that waits for the DNS resolver cannot be interrupted."""
    answered = threading.Event()
    asked = []

    def slow(host, *args, **kwargs):
        asked.append(host)
        answered.wait(60)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    for _ in range(3):
        assert str(refused(1, host="crm.example")) == "crm did not answer within 0 s"
    assert asked == ["crm.example"]
    answered.set()
    # When it is over, the next one asks anew.
    told = []
    wait_for(lambda: told.append(str(refused(1, host="crm.example"))) or len(asked) == 2)
    assert "cannot be reached: [Errno -3]" in told[-1]


def test_the_retry_after_of_a_busy_target_is_stored_in_the_error():
    date = format_datetime(NOW + timedelta(seconds=90), usegmt=True).encode()
    for status, value, after in (
        (429, b"120", 120.0),
        (503, date, 90.0),
        (503, b"86400", 3600.0),
        (429, b"soon", None),
        (503, b"", None),
    ):
        answer = b"HTTP/1.1 %d Busy\r\nretry-after: %s\r\n\r\n" % (status, value)
        with serving(answering(answer)) as port:
            error = refused(port)
        assert error.after == after
        assert f"crm answered {status} Busy" in str(error)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate, with its key, for a host name other than that of the target."""
    file = tmp_path_factory.mktemp("tls") / "erp.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=erp.example"),
            *("-addext", "subjectAltName=DNS:erp.example,DNS:localhost"),
            *("-keyout", str(file), "-out", str(file.with_suffix(".crt"))),
        ],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file


def encrypted(certificate, talk):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    def talk_encrypted(connection):
        with context.wrap_socket(connection, server_side=True) as secured:
            talk(secured)

    return talk_encrypted


def test_https_targets_are_verified_by_certificate(certificate, monkeypatch):
    """The error of a certificate for another host does not contain the address."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(encrypted(certificate, answering(DONE))) as port:
        assert send(port, scheme="https", host="localhost") == 204
        told = str(refused(port, scheme="https"))
    assert told == "crm cannot be reached: its certificate is refused (OpenSSL's verify code 64)"


def test_http_proxies_forward_or_refuse_a_delivery(monkeypatch):
    asked = []

    def talk(connection):
        asked.append(read_request(connection))
        connection.sendall(DONE)

    with serving(talk) as port:
        monkeypatch.setenv("http_proxy", f"http://ann:p%40ss@127.0.0.1:{port}")
        assert send(81, host="crm.example") == 204
    answer = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    with serving(lambda connection: connection.sendall(answer)) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        told = str(refused(443, scheme="https", host="crm.example"))
    assert told == "crm cannot be reached: its proxy answered 407 Proxy Authentication Required"
    assert asked[0].startswith(b"POST http://crm.example:81/hooks HTTP/1.1\r\nhost: crm.example:81")
    assert b"\r\nproxy-authorization: Basic YW5uOnBAc3M=\r\n" in asked[0]


def test_https_targets_are_reached_through_a_proxy_tunnel(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    asked = []
    heard = encrypted(certificate, lambda connection: asked.append(read_request(connection)))

    def talk(connection):
        asked.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        heard(connection)

    with serving(talk) as port:
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{port}")
        refused(443, scheme="https", host="erp.example")
    assert asked[0] == b"CONNECT erp.example:443 HTTP/1.1\r\nhost: erp.example:443\r\n\r\n"
    assert asked[1].startswith(b"POST /hooks HTTP/1.1\r\nhost: erp.example:443\r\n")
