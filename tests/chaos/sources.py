"""The sources of a run with tailers: their servers, which are not killed."""

from contextlib import contextmanager

from tests.tailers import servers


@contextmanager
def sources_of(folder):
    """Start the servers of the sources; yields them, and what a daemon has to know of them."""
    drops = folder / "drops"
    drops.mkdir()
    with servers.valkey() as redis:
        kafka = servers.Broker()
        kafka.make("chaos")
        known = {"folder": str(drops), "redis": redis.url, "kafka": kafka.servers}
        yield {"folder": drops, "redis": redis, "kafka": kafka}, known
