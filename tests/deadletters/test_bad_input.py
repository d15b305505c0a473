"""Invalid arguments of bulk operations are rejected by name, and nothing is written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from atp import queue
from atp.exceptions import (
    InvalidLimit,
    InvalidOption,
    InvalidSelection,
    UnknownErrorGroup,
    UnknownType,
)
from atp.models import Instance, LogRecord
from atp.webhooks import webhook
from tests.app.tasks import echo

# Times that no other zone can write.
FIRST = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12)))
LAST = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=12)))
FAR = datetime(2199, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def registered(db):
    queue.register(echo)


BAD = [
    ({}, InvalidSelection, "all=True"),
    ({"all": "yes"}, InvalidSelection, "all='yes'"),
    ({"type": "tests.echo", "ended_before": FAR}, InvalidSelection, "in the future"),
    ({"type": "tests.echo", "ended_before": datetime(2026, 1, 1)}, InvalidSelection, "time zone"),
    ({"type": "tests.ecco"}, UnknownType, "Did you mean"),
    ({"type": "tests.echo", "reason": "ERORR"}, InvalidSelection, "ERROR"),
    ({"type": "tests.echo", "collection": "a\nb"}, InvalidSelection, "collection"),
    ({"error": "7f3a"}, UnknownErrorGroup, "7f3a"),
    ({"error": "7f"}, UnknownErrorGroup, "4 to 16"),
    ({"error": "nonsense"}, UnknownErrorGroup, "hexadecimal"),
    ({"type": "tests.echo", "rate": "fast"}, InvalidLimit, "rate='fast'"),
    ({"type": "tests.echo", "canary": -1}, InvalidOption, "canary=-1"),
    ({"type": "tests.echo", "canary": 5}, InvalidOption, "only 0"),
    ({"type": "tests.echo", "threshold": 95}, InvalidOption, "threshold=95"),
    ({"type": "tests.echo"}, InvalidSelection, "nothing to redrive"),
    ({"type": ["tests.echo"]}, UnknownType, "No Type"),
    ({"type": "tests.echo", "collection": ["a"]}, InvalidSelection, "must be text"),
    ({"type": "tests.echo", "ended_before": FIRST}, InvalidSelection, "calendar"),
    ({"type": "tests.echo", "by": "\ud800"}, InvalidOption, "Unicode"),
]


def test_invalid_selections_are_rejected_and_nothing_is_written():
    records = LogRecord.objects.count()
    for given, error, words in BAD:
        with pytest.raises(error, match=words):
            queue.redrive_matching(**given)
    # An empty filter has to be meant.
    for verb in (queue.cancel_matching, queue.delete_matching):
        with pytest.raises(InvalidSelection, match="all=True"):
            verb()
        assert verb(all=True, dry_run=True).count == 0
    assert not Instance.objects.exists()
    assert LogRecord.objects.count() == records


def test_mute_refuses_an_end_that_is_over_or_too_far_in_the_future():
    over = datetime.now(UTC) - timedelta(days=1)
    for until, told in ((over, "passed already"), (LAST, "calendar"), (timedelta.max, "calendar")):
        with pytest.raises(InvalidOption, match=told):
            queue.mute("7f3a", until=until)
    for note in ("a" * 200 + "\x00", "a" * 200 + "\ud800"):
        with pytest.raises(InvalidOption, match="printable"):
            queue.annotate("7f3a", note)


def test_types_of_atp_match_only_by_their_full_name():
    """Cancelling everything does not cancel a webhook that waits for its retry."""
    webhook.enqueue(target="crm", uuid="1", type="tests.echo", state="FINISHED", reason="")
    queue.register(echo)
    for given in ({"all": True}, {"type": "*"}):
        assert queue.cancel_matching(**given, dry_run=True).count == 0
    assert queue.cancel_matching(type="atp.webhook", dry_run=True).count == 1
