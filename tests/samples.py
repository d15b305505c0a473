"""Values that several tests start from."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from atp.codec import Payload
from atp.store.values import Claimed


def claimed(number, type="short", lost=0):
    """A Task that has just been claimed; with ``lost`` its Instance was lost so often before."""
    return Claimed(
        instance=number,
        uuid=uuid4(),
        type=type,
        attempt=1,
        inputs=Payload("json", "{}"),
        identifier=None,
        collection="",
        priority=0,
        timeout=None,
        max_retries=0,
        retries=0,
        backoff=timedelta(0),
        backoff_max=timedelta(0),
        max_restarts=3,
        restarts=lost,
        lost=lost,
        time=datetime.now(UTC),
    )
