"""The kinds of the values in documents, for the schema; the keys are those of atp.documents.

Nothing is serialized by these: documents are plain values already.
"""

from rest_framework import serializers as rest

from ..exceptions import LONGEST_DELAY
from ..modes import Mode
from ..options import EXISTING, MAX_IDENTIFIER, MAX_PRIORITY, MIN_PRIORITY
from ..overview import ALIVE, LATE, LOST
from ..registry import IDENTIFIER
from ..states import Event, Reason, State
from ..web.actions import ACTIONS
from . import fields

TAGGED = (
    "What JSON lacks is an object with one key that starts with a dollar: "
    '`{"$date": "2030-01-31"}`, `{"$datetime": "2030-01-31T18:00:00+00:00"}`, '
    '`{"$time": "18:00:00"}`, `{"$timedelta": [days, seconds, microseconds]}`, '
    '`{"$decimal": "0.1"}`, `{"$uuid": "…"}`, `{"$bytes": "base64"}`, `{"$float": "nan"}`. '
    'An object that has such a key by itself is `{"$object": [["$date", "not a date"]]}`.'
)


def page_of(serializer):
    """Return the serializer of a page of a list of these."""
    name = serializer.__name__.removesuffix("Serializer")
    named = {
        "next": rest.URLField(help_text="The page after this, if any.", allow_null=True),
        "previous": rest.URLField(help_text="The page before this, if any.", allow_null=True),
        "results": serializer(many=True),
        "__doc__": None,
    }
    return type(f"{name}PageSerializer", (rest.Serializer,), named)


class TypeSerializer(rest.Serializer):
    identifier = fields.text()
    handler = fields.text("Where its function is, for display.")
    timeout = fields.seconds(
        "A running attempt is killed after this; null is never.", allow_null=True
    )
    max_restarts = fields.count("Attempts that may be lost while running.")
    max_retries = fields.count("Attempts that may raise and try again.")
    backoff = fields.seconds("Delay before the first retry.")
    backoff_max = fields.seconds("Longest delay before a retry.")
    retention = fields.seconds(
        "Ended Instances are kept so long; null is for ever.", allow_null=True
    )
    max_memory = fields.count(
        "An attempt is killed when it has more in memory, in bytes; null is no limit.",
        allow_null=True,
    )
    serializer = fields.text("How inputs are stored.")
    late_writes = fields.count("Results refused so far, because their Task had been taken away.")
    registered = fields.time(
        "When its parameters were last changed; null if never.", allow_null=True
    )
    declared = rest.BooleanField(help_text="Whether this server can enqueue it.")


class InstanceSerializer(rest.Serializer):
    uuid = rest.UUIDField()
    type = fields.text("Identifier of its Type.")
    identifier = fields.text("The caller's idempotency key.", allow_null=True)
    state = fields.word(State)
    reason = fields.word(["", *Reason], "Why it FAILED; otherwise empty.")
    collection = fields.text("Label of a subset of the Type's Instances; empty if it has none.")
    priority = rest.IntegerField(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY)
    attempt = fields.count("Claims so far.")
    restarts = fields.count("Attempts lost while running.")
    retries = fields.count("Attempts that raised.")
    lost = fields.count("Attempts lost in all.")
    progress = rest.FloatField(min_value=0, max_value=1, allow_null=True)
    progress_message = fields.text()
    start_before = fields.time("FAILED (MISSED) if not started by then.", allow_null=True)
    created_by = fields.text("Who enqueued it, and through which channel.")
    created = fields.time()
    started = fields.time("When the last attempt started.", allow_null=True)
    finished = fields.time("When it ended.", allow_null=True)
    actions = rest.ListField(
        child=fields.word(ACTIONS),
        help_text="What its state allows: names of addresses below `url`.",
    )
    waits_for = rest.ListField(
        child=fields.text(),
        required=False,
        help_text="Why it does not start, a sentence each: gates, its due time, limits, who "
        "serves its Type. Empty if it does not wait; not told in lists.",
    )
    url = rest.URLField(help_text="Its own address.")


class EnqueueSerializer(rest.Serializer):
    type = rest.RegexField(f"^{IDENTIFIER}$", help_text="Identifier of a Type that is declared.")
    inputs = fields.Plain(
        {"type": "object"},
        {"type": "array"},
        required=False,
        help_text="An object of arguments by name, or an array of arguments by position; in an "
        f'object, what stands under `"*"` is given by position. {TAGGED}',
    )
    identifier = fields.text(
        "Idempotency key, unique within the Type; printable.",
        required=False,
        allow_null=True,
        min_length=1,
        max_length=MAX_IDENTIFIER,
    )
    existing = fields.word(
        EXISTING,
        "If the identifier is taken: refuse, give the existing Instance, or redrive that if it "
        "FAILED.",
        required=False,
    )
    priority = rest.IntegerField(
        required=False,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        help_text="Higher first. The Type may have a default.",
    )
    collection = fields.text(
        "Label of a subset of the Type's Instances; printable. The Type may have a default.",
        required=False,
        allow_blank=True,
        max_length=MAX_IDENTIFIER,
    )
    run_after = fields.Plain(
        *fields.MOMENT,
        required=False,
        allow_null=True,
        help_text="Not earlier: a time with an offset, or seconds from now.",
    )
    start_before = fields.Plain(
        *fields.MOMENT,
        required=False,
        allow_null=True,
        help_text="FAILED (MISSED) if not started by then: a time with an offset, or seconds "
        "from now.",
    )


class ChangeSerializer(rest.Serializer):
    """What is left out stays as it is."""

    priority = rest.IntegerField(
        required=False, min_value=MIN_PRIORITY, max_value=MAX_PRIORITY, help_text="Higher first."
    )
    due_at = fields.Plain(
        *fields.MOMENT,
        required=False,
        help_text="Not earlier: a time with an offset, or seconds from now; 0 is at once.",
    )
    postpone = fields.Plain(
        {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY},
        required=False,
        help_text="So many seconds later than it was due, or than now if it is due; without "
        "`due_at`.",
    )
    collection = fields.text(
        "Printable; empty for none.", required=False, allow_blank=True, max_length=MAX_IDENTIFIER
    )


class InputsSerializer(rest.Serializer):
    format = fields.text("How they are stored, `json` or `pickle`.")
    value = rest.JSONField(
        help_text="The arguments by name, those by position under `*`, as they are stored; null "
        f"for a pickle, which is never opened. {TAGGED}"
    )


class FileSerializer(rest.Serializer):
    number = fields.count("Its place among those published.")
    name = fields.text()
    path = fields.text("Where it is in Django's storage.")
    content_type = fields.text()
    size = fields.count("Bytes.")
    attempt = fields.count("The attempt that published it.")
    url = rest.URLField(help_text="Where its content is.")


class LogRecordSerializer(rest.Serializer):
    time = fields.time()
    event = fields.word(["", *Event], "What moved the Instance; empty for messages.")
    state = fields.word(["", *State], "The state after the event.")
    attempt = fields.count(allow_null=True)
    level = fields.count("As in Python's logging: 20 is INFO, 30 WARNING, 40 ERROR.")
    who = fields.text("A daemon and its worker, or a user and the channel.")
    message = fields.text()


class TaskSerializer(rest.Serializer):
    instance = rest.UUIDField()
    type = fields.text("Identifier of its Type.")
    collection = fields.text()
    priority = rest.IntegerField(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY)
    due_at = fields.time("Not started earlier.")
    start_before = fields.time("FAILED (MISSED) if not started by then.", allow_null=True)
    daemon = fields.text("Host and pid of the daemon that holds it.", allow_null=True)
    attempt = fields.count()
    request = fields.text("What its holder has been asked for; otherwise empty.")


class WorkerSerializer(rest.Serializer):
    worker = fields.count(allow_null=True)
    pid = fields.count(allow_null=True)
    type = fields.text("What it has in hand.", allow_null=True)
    instance = rest.UUIDField(allow_null=True)
    since = fields.time(allow_null=True)
    paused = rest.BooleanField(help_text="Whether what it has in hand is on hold.")


class DaemonSerializer(rest.Serializer):
    uuid = rest.UUIDField()
    host = fields.text()
    pid = fields.count()
    version = fields.text()
    types = rest.ListField(child=fields.text(), help_text="The Types that it serves.")
    workers = WorkerSerializer(many=True, help_text="As its last renewal told.")
    lock = fields.text("Name of the file lock that is its lease; empty where the lease is a time.")
    lease_until = fields.time()
    idle = rest.BooleanField()
    mode = fields.word(Mode, "What it does, as it says itself.")
    request = fields.text("What it has been told: quiet, stop, or empty.")
    started = fields.time()
    seen = fields.time("Its last renewal.")
    condition = fields.word((ALIVE, LATE, LOST), "Late: it has missed a renewal. Lost: no lease.")


class DaemonCountsSerializer(rest.Serializer):
    alive = fields.count()
    late = fields.count()
    lost = fields.count()


class HealthSerializer(rest.Serializer):
    status = fields.word(("ok", "failing"))
    time = fields.time("By the database's clock.", required=False, allow_null=True)
    database = rest.BooleanField(
        required=False, help_text="Whether it answers and has been migrated."
    )
    daemons = DaemonCountsSerializer(required=False, allow_null=True)
    oldest_due = fields.time(
        "When the Task was due that has been waiting longest.", required=False, allow_null=True
    )
    problems = rest.ListField(
        child=fields.text(), required=False, help_text="What is wrong, a sentence each."
    )
    notes = rest.ListField(
        child=fields.text(),
        required=False,
        help_text="What is held or limited as somebody wants it, and how much of it is due.",
    )


class ProblemErrorSerializer(rest.Serializer):
    field = fields.text("Where in the body or the query, as `[3].inputs.azimuth`.")
    detail = fields.text()


class ProblemSerializer(rest.Serializer):
    """RFC 9457."""

    type = fields.text("Which kind of problem, `urn:atp:problem:…`.")
    title = fields.text("The kind in words.")
    status = rest.IntegerField(min_value=400, max_value=599)
    detail = fields.text("What is wrong here.")
    instance = fields.text("Path of the request.")
    errors = ProblemErrorSerializer(many=True, required=False)
