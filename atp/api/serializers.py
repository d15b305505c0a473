"""Serializers for the documents that the API returns.

Their fields only tell the OpenAPI document which keys a document has, and the types of the values.
The module :mod:`atp.reports.documents` renders rows as documents.
"""

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers as rest

from .. import queue
from ..commands import Mode
from ..graphs.operations import get_node
from ..models import Daemon, Instance, Kind, Task
from ..operations.table import INSTANCE, OPERATIONS, allowed_operations
from ..options import MAX_PRIORITY, MIN_PRIORITY
from ..reports import documents
from ..reports.explaining.explain import why
from ..reports.overview import ALIVE, LATE, LOST
from ..states import Event, Reason, State
from ..web import permissions
from . import schema

# The names of the operations with their own address: ``POST instances/UUID/NAME``.
POST_OPERATIONS = [
    operation.name for operation in OPERATIONS[INSTANCE].values() if operation.method == "POST"
]


class DocumentSerializer(rest.Serializer):
    # ``render`` returns the document for a row. By default the row is a document already.
    @staticmethod
    def render(row: Any) -> dict[str, Any]:
        return row

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return self.render(instance)


class InstancesSerializer(rest.ListSerializer):
    """The serializer for a list of Instances. It reads the errors of all Instances at once."""

    def to_representation(self, data: Sequence[Instance]) -> list[dict[str, Any]]:
        self.child.read_errors(data)
        return super().to_representation(data)


class InstanceSerializer(DocumentSerializer):
    uuid = rest.UUIDField()
    type = schema.text("Identifier of its Type.")
    identifier = schema.text("The caller's idempotency key.", null=True)
    unique = schema.text("No other live Instance of its Type has this key.", null=True)
    state = schema.word(State)
    reason = schema.word(["", *Reason], "Why it FAILED; otherwise empty.")
    collection = schema.text("Label of a subset of the Type's Instances; empty if it has none.")
    priority = rest.IntegerField(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY)
    attempt = schema.count("Claims so far.")
    restarts = schema.count("Attempts lost while running.")
    retries = schema.count("Attempts that raised.")
    lost = schema.count("Attempts lost in all.")
    progress = rest.FloatField(min_value=0, max_value=1, allow_null=True)
    progress_message = schema.text()
    start_before = schema.time("If not started by this time, it is FAILED (MISSED).", null=True)
    timeout = schema.seconds("Of this Instance alone; null if its Type's applies.", null=True)
    max_retries = schema.count("Of this Instance alone; null if its Type's applies.", null=True)
    created_by = schema.text("Who enqueued it, and through which channel.")
    created = schema.time()
    started = schema.time("When the last attempt started.", null=True)
    finished = schema.time("When it ended.", null=True)
    actions = rest.ListField(
        child=schema.word(POST_OPERATIONS),
        help_text="Actions that the state allows: names of addresses below `url`.",
    )
    is_new = schema.flag(
        "Whether this enqueue made the Instance; false if it existed. Given only in the answer "
        "to an enqueue.",
        absent=True,
    )
    inputs_differ = schema.flag(
        "Whether the existing Instance has other inputs than those sent, which are not kept; "
        "null if unknown, for a pickle. Given only in the answer to an enqueue. Needs "
        "`atp.view_inputs`.",
        absent=True,
        null=True,
    )
    due_at = schema.time(
        "The Instance starts no earlier than this; null once it has ended, and while it waits for "
        "other nodes of its graph. Not given in lists.",
        absent=True,
        null=True,
    )
    daemon = schema.text(
        "Host and pid of the daemon that holds the Instance. Not given in lists. Needs "
        "`atp.view_daemon`.",
        absent=True,
        null=True,
    )
    error = schema.text(
        "Why it FAILED: the headline of the failure in its log; null if it has not FAILED. Needs "
        "`atp.view_logrecord` or `atp.operate`.",
        absent=True,
        null=True,
    )
    graph = rest.UUIDField(
        required=False,
        allow_null=True,
        help_text="Uuid of its graph; null if none. Not given in lists. Needs `atp.view_graph`.",
    )
    waits_for = schema.texts(
        "The reasons why it does not start, a sentence each: gates, other nodes, its due time, "
        "limits, no daemon for its Type. Empty if it does not wait. Not given in lists."
    )
    hooks = schema.texts(
        "Uuids of the hooks that its ends have enqueued, the latest hundred. Not given in lists."
    )
    hook_of = rest.UUIDField(
        required=False,
        allow_null=True,
        help_text="The Instance whose end enqueued this hook; null if no hook. Not given in lists.",
    )
    url = rest.URLField(help_text="Its own address.")

    class Meta:
        list_serializer_class = InstancesSerializer

    # Headlines of errors by primary key, for the Instances whose errors the user may see.
    errors_by_key: dict[int, str | None] = {}

    def read_errors(self, instances: Sequence[Instance]) -> None:
        user = self.context["request"].user
        visible = [each for each in instances if permissions.may_see_errors(user, each)]
        if visible:
            keys = [each.pk for each in visible]
            self.errors_by_key = dict.fromkeys(keys) | documents.headlines(visible)

    def to_representation(self, instance: Instance) -> dict[str, Any]:
        return self.describe(instance)

    def describe(self, instance: Instance, task: Task | None = None) -> dict[str, Any]:
        """Return an Instance's document.

        The document's list of allowed actions is exact only if ``task`` is given.
        """
        if self.parent is None:
            self.read_errors([instance])
        document = documents.instance(instance) | {
            "actions": [
                each.name
                for each in allowed_operations(instance, task)
                if each.name in POST_OPERATIONS
            ],
            "url": self.context["view"].url("instances-detail", instance.uuid),
        }
        if instance.pk in self.errors_by_key:
            document["error"] = self.errors_by_key[instance.pk]
        return document


class InstanceDetailSerializer(InstanceSerializer):
    """The full document of an Instance, with the reasons why the Instance does not start."""

    def to_representation(self, instance: Instance) -> dict[str, Any]:
        task = queue.task(instance)
        queued = documents.task(task) or {"due_at": None, "daemon": None}
        document = self.describe(instance, task) | {"due_at": queued["due_at"]}
        if _may_see_daemons(self):
            document["daemon"] = queued["daemon"]
        user = self.context["request"].user
        if user.has_perm(permissions.VIEW_GRAPH):
            node = get_node(instance.pk)
            graph = None if node is None else node.graph
            if graph is not None and not permissions.holds(user, permissions.VIEW_GRAPH, graph):
                graph = None
            document["graph"] = None if graph is None else graph.uuid
        return document | {
            "waits_for": list(
                why(instance, task, **permissions.explanation_options(user, instance))
            ),
            "hooks": [hook.uuid for hook in documents.enqueued_hooks(instance)],
            "hook_of": instance.hook_of,
        }


def _may_see_daemons(serializer: Any) -> bool:
    """Return True if the user may see which daemon holds a Task."""
    return permissions.holds(serializer.context["request"].user, permissions.VIEW_DAEMON)


class InputsSerializer(DocumentSerializer):
    format = schema.text("How they are stored, `json` or `pickle`.")
    value = rest.JSONField(
        help_text="The stored arguments by name, and those by position under `*`; null for a "
        f"pickle, which is never opened. {schema.TAGGED}"
    )
    carried = rest.DictField(
        child=rest.JSONField(), help_text="Values of the context propagators, by name."
    )

    render = staticmethod(documents.inputs)  # type: ignore[assignment]


class FileSerializer(DocumentSerializer):
    number = schema.count("Place of the file among the published files, from 0.")
    name = schema.text()
    path = schema.text("Path of the file in Django's storage.")
    content_type = schema.text()
    size = schema.count("In bytes.")
    attempt = schema.count("The attempt that published it.")
    url = rest.URLField(help_text="Address of the content.")


class LogRecordSerializer(DocumentSerializer):
    time = schema.time()
    kind = schema.word([*Event, *Kind], "The event, or the kind of a record that is no event.")
    detail = schema.text("Details for programs: what was asked, an exception's class …")
    event = schema.word(["", *Event], "The event that moved the Instance; empty if none did.")
    state = schema.word(["", *State], "The state after the event.")
    attempt = schema.count(null=True)
    level = schema.count("As in Python's logging: 20 is INFO, 30 WARNING, 40 ERROR.")
    who = schema.text("Who did it: a daemon and its worker, or a user and the channel.")
    message = schema.text()

    render = staticmethod(documents.log_record)


class TaskSerializer(DocumentSerializer):
    instance = rest.UUIDField()
    type = schema.text("Identifier of its Type.")
    collection = schema.text()
    priority = rest.IntegerField(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY)
    due_at = schema.time("It starts no earlier; null while it waits for other nodes.", null=True)
    start_before = schema.time("If not started by this time, it is FAILED (MISSED).", null=True)
    daemon = schema.text(
        "Host and pid of the daemon that holds the Task. Needs `atp.view_daemon`.",
        absent=True,
        null=True,
    )
    attempt = schema.count()
    request = schema.text("The command to its daemon, such as `cancel`; otherwise empty.")

    def to_representation(self, instance: Task) -> dict[str, Any]:
        document = documents.queued_task(instance)
        if not _may_see_daemons(self):
            del document["daemon"]
        return document


class WorkerSerializer(rest.Serializer):
    worker = schema.count(null=True)
    pid = schema.count(null=True)
    loop = schema.count("The loop of which it is a place; null if it is a process.", null=True)
    host = schema.text("The host on which an engine runs its attempt; null on its own.", null=True)
    type = schema.text("Type of the Instance that the worker runs.", null=True)
    instance = rest.UUIDField(allow_null=True, help_text="Needs `atp.view_instance`; else null.")
    since = schema.time(null=True)
    paused = schema.flag("Whether its attempt is paused.")
    blocks = rest.FloatField(
        allow_null=True,
        help_text="For how many seconds its attempt has blocked its loop; null if it does not.",
    )


class EngineSerializer(rest.Serializer):
    executor = schema.text("Its name in the setting EXECUTORS.")
    address = schema.text()
    hosts = schema.count()
    places = schema.count("For attempts, on all hosts.")
    room = schema.count("Of these, those that this daemon can have: others take the rest.")
    resources = rest.DictField(child=rest.FloatField(), help_text="The sums of all hosts, by name.")
    lacks = rest.DictField(child=schema.text(), help_text="What it lacks for a Type, by Type.")
    error = schema.text("Why it cannot be reached; else empty.")


class DaemonSerializer(DocumentSerializer):
    uuid = rest.UUIDField()
    host = schema.text()
    pid = schema.count()
    version = schema.text()
    release = schema.text("The release of the project's code that it runs; empty if none is set.")
    types = rest.ListField(child=schema.text(), help_text="The Types that it serves.")
    labels = rest.DictField(child=schema.text(), help_text="The labels of its host.")
    capacity = rest.DictField(child=schema.count(), help_text="The resources of its host.")
    signatures = rest.DictField(child=schema.text(), help_text="Hashes of signatures, by Type.")
    engine = EngineSerializer(allow_null=True, help_text="The engine that runs its attempts.")
    workers = WorkerSerializer(many=True, help_text="The workers at the last renewal.")
    lock = schema.text("Name of the file lock that is its lease; empty where the lease is a time.")
    lease_until = schema.time()
    idle = rest.BooleanField()
    mode = schema.word(Mode, "The mode of the daemon, as it reports itself.")
    request = schema.text("The command that it has been sent: quiet or stop; otherwise empty.")
    started = schema.time()
    seen = schema.time("Its last renewal.")
    condition = schema.word((ALIVE, LATE, LOST), "Late: it has missed a renewal. Lost: no lease.")
    utilisation = rest.FloatField(
        min_value=0,
        max_value=1,
        allow_null=True,
        help_text="The busy part of its workers in its last complete minute; null if unknown.",
    )

    def to_representation(self, instance: Daemon) -> dict[str, Any]:
        document = documents.daemon(instance, self.context["now"])
        document["utilisation"] = self.context["utilisation"].get(instance.uuid)
        if not self.context["request"].user.has_perm(permissions.VIEW_INSTANCE):
            document["workers"] = [each | {"instance": None} for each in document["workers"]]
        return document
