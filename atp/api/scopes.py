"""Gates, limits and downstreams in the API."""

from rest_framework import serializers as rest
from rest_framework.response import Response

from .. import queue
from ..models import Downstream
from ..reports import documents, downstreams
from ..verbs.table import DOWNSTREAM, SCOPE, VERBS
from ..web.permissions import CONTROL, VIEW_DOWNSTREAM, VIEW_TYPE
from ..words.kinds import Choice, Flag, Text
from . import fields
from .base import Body, ViewSet, with_verbs
from .fields import TypeIdentifier, Value
from .problems import BODY, wrong
from .queries import page_of
from .schema import named, operation
from .serializers import Document

_VERBS = VERBS[SCOPE]
_GATES = {name: _VERBS[name] for name in ("hold", "drop", "open")}
_LIMIT, _UNLIMIT = _VERBS["limit"], _VERBS["unlimit"]


class GateSerializer(Document):
    type = fields.text("Identifier of the Type; null means all Types.", null=True)
    collection = fields.text("The lane of the Type; null means the whole Type.", null=True)
    mode = fields.word(("hold", "drop"), "Hold: Instances wait. Drop: they become FAILED.")
    reason = fields.text()
    who = fields.text("Who has set it, and through which channel.")
    since = fields.time()
    until = fields.time("When the gate opens by itself; null is never.", null=True)

    render = staticmethod(documents.gate)


class GatesSetSerializer(page_of(GateSerializer)):
    """All gates that are shut, and the outcome for the gate that was set."""

    told = fields.text("What was done, the gate before, and other gates over the scope.")
    was = GateSerializer(help_text="The gate that was shut before.", allow_null=True)


class LimitSerializer(Document):
    type = fields.text("Identifier of the Type.")
    collection = fields.text("The lane of the Type; null means the whole Type.", null=True)
    max_running = fields.count("The most Instances claimed at a time; null is no limit.", null=True)
    max_running_per_collection = fields.count(
        "The most Instances of each lane claimed at a time; null is no limit.",
        null=True,
    )
    rate = fields.text("Instances started per period, as `100/m`; empty is no limit.")
    burst = fields.count("The most Instances that the rate lets start at once after a pause.")
    weight = rest.FloatField(min_value=0, help_text="Share of the Type relative to others.")
    max_waiting = fields.count(
        "The most Instances that may wait; a further enqueue is refused. Null is no limit.",
        null=True,
    )
    max_wait = fields.seconds(
        "An enqueue is refused only if the oldest due Instance has waited longer; null: no limit.",
        null=True,
    )
    is_set = fields.flag("Whether an operator has set the limits; if not, the code declares them.")
    who = fields.text("Who has set it, and through which channel.")
    since = fields.time()

    render = staticmethod(documents.limit)


class LimitsSetSerializer(page_of(LimitSerializer)):
    """All limits, and with `default` a sentence about the limits in force."""

    told = fields.text("With `default`, the limits in force, in words; otherwise empty.")


class SetGateSerializer(Body):
    type = Value(TypeIdentifier(), "Without it, the gate is over all Types.", allow_null=True)
    collection = Value(Text(), "Only this lane of the Type; printable.", allow_null=True)
    mode = Value(Choice(tuple(_GATES)), required=True)
    parameters = _GATES["hold"].parameters
    # A null value counts as not given.
    nullable = True


class SetLimitSerializer(Body):
    type = Value(TypeIdentifier(), "Identifier of the Type.", required=True)
    collection = Value(Text(), "Only this lane of the Type; printable.", allow_null=True)
    default = Value(Flag(), "Use the limits that the code declares; give no limits beside it.")
    parameters = _LIMIT.parameters


class DownstreamSerializer(Document):
    name = fields.text()
    state = fields.text("Closed (healthy), throttled, open or half-open.")
    per_second = rest.FloatField(help_text="Calls a second, while throttled.")
    ceiling = rest.FloatField(allow_null=True, help_text="The highest rate; null is none.")
    floor = rest.FloatField(allow_null=True, help_text="The lowest rate; null is none.")
    not_before = fields.time("Handlers make no calls before this; null is at any time.", null=True)
    trips = fields.count("Outages in a row.")
    who = fields.text("Who has changed its state: a daemon, or an operator.")
    since = fields.time("When its state changed.")
    types = fields.texts("Identifiers of the Types that call it.")
    actions = fields.texts("Actions that the state allows: names of addresses below its own.")

    @staticmethod
    def render(row):
        verbs = VERBS[DOWNSTREAM].values()
        actions = [verb.name for verb in verbs if verb.is_allowed(row)]
        return downstreams.document(row) | {"actions": actions}


@with_verbs(
    DOWNSTREAM,
    VIEW_DOWNSTREAM,
    lambda verb: (f"{verb.id}_downstream", verb.said_of("a downstream"), verb.explanation),
)
class DownstreamViewSet(ViewSet):
    """The services that handlers call, by name."""

    tag = "downstreams"
    lookup_field = "name"
    model = Downstream
    serializer_class = DownstreamSerializer
    named = (named("name", "The downstream's name.", **TypeIdentifier.schema),)

    def find(self):
        return queue.get_downstream(self.kwargs["name"])

    def answer(self, row, outcome):
        return Response(self.get_serializer(outcome.value).data)

    @operation("list_downstreams", "The services that handlers call", VIEW_DOWNSTREAM)
    def list(self, request):
        return self.listed(self.seen(queue.downstreams()))

    @operation("get_downstream", "One downstream", VIEW_DOWNSTREAM)
    def retrieve(self, request, name):
        return Response(self.get_serializer(self.get_object()).data)


class GateViewSet(ViewSet):
    tag = "gates"
    serializer_class = GateSerializer

    def _shut(self):
        """Return the gates that are shut, as far as the user may see them."""
        gates = queue.gates()
        seen = self.seen(gates)
        # One over everything holds what the user may see, too.
        return [gate for gate in gates if gate.type_id is None or gate in seen]

    @operation("list_gates", "The gates that are shut", VIEW_TYPE)
    def list(self, request):
        return self.listed(self._shut())

    @operation(
        "set_gate",
        "Hold or drop waiting Instances, or open a gate",
        VIEW_TYPE,
        CONTROL,
        description="The gate is that of a Type, of a lane (with `collection`), or of everything "
        "(without `type`). The answer is all gates that are shut then, and the gate that was shut "
        "before. With `expected`, a gate that somebody else has set meanwhile stays.",
        body=SetGateSerializer,
        answer=GatesSetSerializer,
        problems=(404, 409),
    )
    def create(self, request):
        given = self.values("set")
        verb = _GATES[given.pop("mode")]
        scope = given.pop("type", None), given.pop("collection", None)
        given = {name: value for name, value in given.items() if value is not None}
        if "until" in given and verb.name == "open":
            raise wrong(BODY, [("until", "A gate that is opened does not open by itself.")])
        outcome = self.perform(verb, scope, **given)
        was = outcome.value if verb.name == "open" else outcome.value.was
        was = None if was is None else self.get_serializer(was).data
        return self.listed(self._shut(), told=outcome.told, was=was)


class LimitViewSet(ViewSet):
    tag = "limits"
    serializer_class = LimitSerializer

    @operation("list_limits", "All limits, and the weights of Types", VIEW_TYPE)
    def list(self, request):
        return self.listed(self.seen(queue.limits()))

    @operation(
        "set_limit",
        "Limit a Type or a lane, over all daemons",
        VIEW_TYPE,
        CONTROL,
        description="A limit that is not given stays; null removes it. With `default`, the limits "
        "that the code declares apply again. The answer is all limits that are set then.",
        body=SetLimitSerializer,
        answer=LimitsSetSerializer,
        problems=(404,),
    )
    def create(self, request):
        given = self.values("set")
        scope = given.pop("type"), given.pop("collection", None)
        if not given.pop("default", False):
            self.perform(_LIMIT, scope, **given)
            return self.listed(self.seen(queue.limits()), told="")
        if given:
            raise wrong(BODY, [("default", "It takes no limits beside it.")])
        outcome = self.perform(_UNLIMIT, scope)
        return self.listed(self.seen(queue.limits()), told=outcome.told)
