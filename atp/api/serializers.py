"""The kinds of the values in documents, for the schema; the keys are those of atp.documents.

Nothing is serialized by these: documents are plain values already.
"""

from rest_framework import serializers as rest

from ..exceptions import LONGEST_DELAY
from ..options import EXISTING, MAX_IDENTIFIER, MAX_PRIORITY, MIN_PRIORITY
from ..overview import ALIVE, LATE, LOST
from ..registry import IDENTIFIER
from ..states import Event, Reason, State
from ..web.actions import ACTIONS

TAGGED = (
    "What JSON lacks is an object with one key that starts with a dollar: "
    '`{"$date": "2030-01-31"}`, `{"$datetime": "2030-01-31T18:00:00+00:00"}`, '
    '`{"$time": "18:00:00"}`, `{"$timedelta": [days, seconds, microseconds]}`, '
    '`{"$decimal": "0.1"}`, `{"$uuid": "…"}`, `{"$bytes": "base64"}`, `{"$float": "nan"}`. '
    'An object that has such a key by itself is `{"$object": [["$date", "not a date"]]}`.'
)


def _text(text="", **kwargs):
    return rest.CharField(help_text=text, **kwargs)


def _time(text="", **kwargs):
    return rest.DateTimeField(help_text=text, **kwargs)


def _count(text="", **kwargs):
    return rest.IntegerField(min_value=0, help_text=text, **kwargs)


def _seconds(text, **kwargs):
    return rest.FloatField(min_value=0, help_text=f"{text} Seconds.", **kwargs)


def _word(words, text="", **kwargs):
    return rest.ChoiceField(choices=[str(word) for word in words], help_text=text, **kwargs)


def page_of(serializer):
    """Return the serializer of a page of a list of these."""
    name = serializer.__name__.removesuffix("Serializer")
    fields = {
        "next": rest.URLField(help_text="The page after this, if any.", allow_null=True),
        "previous": rest.URLField(help_text="The page before this, if any.", allow_null=True),
        "results": serializer(many=True),
        "__doc__": None,
    }
    return type(f"{name}PageSerializer", (rest.Serializer,), fields)


class TypeSerializer(rest.Serializer):
    identifier = _text()
    handler = _text("Where its function is, for display.")
    timeout = _seconds("A running attempt is killed after this; null is never.", allow_null=True)
    max_restarts = _count("Attempts that may be lost while running.")
    max_retries = _count("Attempts that may raise and try again.")
    backoff = _seconds("Delay before the first retry.")
    backoff_max = _seconds("Longest delay before a retry.")
    retention = _seconds("Ended Instances are kept so long; null is for ever.", allow_null=True)
    serializer = _text("How inputs are stored.")
    registered = _time("When its parameters were last changed; null if never.", allow_null=True)
    declared = rest.BooleanField(help_text="Whether this server can enqueue it.")


class InstanceSerializer(rest.Serializer):
    uuid = rest.UUIDField()
    type = _text("Identifier of its Type.")
    identifier = _text("The caller's idempotency key.", allow_null=True)
    state = _word(State)
    reason = _word(["", *Reason], "Why it FAILED; otherwise empty.")
    collection = _text("Label of a subset of the Type's Instances; empty if it has none.")
    priority = rest.IntegerField(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY)
    attempt = _count("Claims so far.")
    restarts = _count("Attempts lost while running.")
    retries = _count("Attempts that raised.")
    lost = _count("Attempts lost in all.")
    progress = rest.FloatField(min_value=0, max_value=1, allow_null=True)
    progress_message = _text()
    start_before = _time("FAILED (MISSED) if not started by then.", allow_null=True)
    created_by = _text("Who enqueued it, and through which channel.")
    created = _time()
    started = _time("When the last attempt started.", allow_null=True)
    finished = _time("When it ended.", allow_null=True)
    actions = rest.ListField(
        child=_word(ACTIONS), help_text="What its state allows: names of addresses below `url`."
    )
    url = rest.URLField(help_text="Its own address.")


class PlainField(rest.Field):
    """One of ``possible``, schemas as OpenAPI has them."""

    def __init__(self, *possible, **kwargs):
        super().__init__(**kwargs)
        self.possible = possible


# A time, or seconds from now.
_MOMENT = (
    {"type": "string", "format": "date-time"},
    {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY},
)


class EnqueueSerializer(rest.Serializer):
    type = rest.RegexField(f"^{IDENTIFIER}$", help_text="Identifier of a Type that is declared.")
    inputs = PlainField(
        {"type": "object"},
        {"type": "array"},
        required=False,
        help_text="An object of arguments by name, or an array of arguments by position; in an "
        f'object, what stands under `"*"` is given by position. {TAGGED}',
    )
    identifier = _text(
        "Idempotency key, unique within the Type; printable.",
        required=False,
        allow_null=True,
        min_length=1,
        max_length=MAX_IDENTIFIER,
    )
    existing = _word(
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
    collection = _text(
        "Label of a subset of the Type's Instances; printable. The Type may have a default.",
        required=False,
        allow_blank=True,
        max_length=MAX_IDENTIFIER,
    )
    run_after = PlainField(
        *_MOMENT,
        required=False,
        allow_null=True,
        help_text="Not earlier: a time with an offset, or seconds from now.",
    )
    start_before = PlainField(
        *_MOMENT,
        required=False,
        allow_null=True,
        help_text="FAILED (MISSED) if not started by then: a time with an offset, or seconds "
        "from now.",
    )


class InputsSerializer(rest.Serializer):
    format = _text("How they are stored, `json` or `pickle`.")
    value = rest.JSONField(
        help_text="The arguments by name, those by position under `*`, as they are stored; null "
        f"for a pickle, which is never opened. {TAGGED}"
    )


class FileSerializer(rest.Serializer):
    number = _count("Its place among those published.")
    name = _text()
    path = _text("Where it is in Django's storage.")
    content_type = _text()
    size = _count("Bytes.")
    attempt = _count("The attempt that published it.")
    url = rest.URLField(help_text="Where its content is.")


class LogRecordSerializer(rest.Serializer):
    time = _time()
    event = _word(["", *Event], "What moved the Instance; empty for messages.")
    state = _word(["", *State], "The state after the event.")
    attempt = _count(allow_null=True)
    level = _count("As in Python's logging: 20 is INFO, 30 WARNING, 40 ERROR.")
    who = _text("A daemon and its worker, or a user and the channel.")
    message = _text()


class TaskSerializer(rest.Serializer):
    instance = rest.UUIDField()
    type = _text("Identifier of its Type.")
    collection = _text()
    priority = rest.IntegerField(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY)
    due_at = _time("Not started earlier.")
    start_before = _time("FAILED (MISSED) if not started by then.", allow_null=True)
    daemon = _text("Host and pid of the daemon that holds it.", allow_null=True)
    attempt = _count()
    request = _text("What its holder has been asked for; otherwise empty.")


class WorkerSerializer(rest.Serializer):
    worker = _count(allow_null=True)
    pid = _count(allow_null=True)
    type = _text("What it has in hand.", allow_null=True)
    instance = rest.UUIDField(allow_null=True)
    since = _time(allow_null=True)


class DaemonSerializer(rest.Serializer):
    uuid = rest.UUIDField()
    host = _text()
    pid = _count()
    version = _text()
    types = rest.ListField(child=_text(), help_text="The Types that it serves.")
    workers = WorkerSerializer(many=True, help_text="As its last renewal told.")
    lock = _text("Name of the file lock that is its lease; empty where the lease is a time.")
    lease_until = _time()
    idle = rest.BooleanField()
    request = _text()
    started = _time()
    seen = _time("Its last renewal.")
    condition = _word((ALIVE, LATE, LOST), "Late: it has missed a renewal. Lost: no lease.")


class DaemonCountsSerializer(rest.Serializer):
    alive = _count()
    late = _count()
    lost = _count()


class HealthSerializer(rest.Serializer):
    status = _word(("ok", "failing"))
    time = _time("By the database's clock.", required=False, allow_null=True)
    database = rest.BooleanField(
        required=False, help_text="Whether it answers and has been migrated."
    )
    daemons = DaemonCountsSerializer(required=False, allow_null=True)
    oldest_due = _time(
        "When the Task was due that has been waiting longest.", required=False, allow_null=True
    )
    problems = rest.ListField(
        child=_text(), required=False, help_text="What is wrong, a sentence each."
    )


class ProblemErrorSerializer(rest.Serializer):
    field = _text("Where in the body or the query, as `[3].inputs.azimuth`.")
    detail = _text()


class ProblemSerializer(rest.Serializer):
    """RFC 9457."""

    type = _text("Which kind of problem, `urn:atp:problem:…`.")
    title = _text("The kind in words.")
    status = rest.IntegerField(min_value=400, max_value=599)
    detail = _text("What is wrong here.")
    instance = _text("Path of the request.")
    errors = ProblemErrorSerializer(many=True, required=False)
