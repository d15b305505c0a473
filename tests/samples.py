"""Values that several tests start from."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from atp.store.values import Attempt, Parameters


def claimed(instance, type="short", lost=0, **given):
    """An attempt whose Task has just been claimed; its Instance was ``lost`` so often before."""
    return Attempt(
        **{
            "instance": instance,
            "uuid_text": str(uuid4()),
            "number": 1,
            "format": "json",
            "data": "{}",
            "identifier": None,
            "collection": "",
            "priority": 0,
            "retries": 0,
            "restarts": lost,
            "lost": lost,
            "own": None,
            "parameters": parameters(type),
            "time": datetime.now(UTC),
            **given,
        }
    )


def parameters(type="short", **given):
    """The parameters of a Type; what is not given has a plain value."""
    return Parameters(
        **{
            "type": type,
            "timeout": None,
            "max_retries": 0,
            "backoff": timedelta(0),
            "backoff_max": timedelta(0),
            "max_restarts": 3,
            "max_memory": None,
            **given,
        }
    )
