"""Gates and limits: what is set, and setting it."""

from datetime import datetime

from rest_framework.exceptions import ParseError
from rest_framework.response import Response

from .. import documents, queue, told
from ..conf import did_you_mean
from ..exceptions import InvalidOption
from ..web import permissions
from ..web.actor import API, actor
from . import moments
from .base import View
from .operation import Answer, Operation
from .places import (
    GateSerializer,
    GatesSetSerializer,
    LimitSerializer,
    LimitsSetSerializer,
    SetGateSerializer,
    SetLimitSerializer,
)
from .problems import BODY, wrong
from .serializers import page_of

_VERBS = {"hold": queue.hold, "drop": queue.drop, "open": queue.open_gate}
_GATE_PAGE, _LIMIT_PAGE = page_of(GateSerializer), page_of(LimitSerializer)
_PLACE = ("type", "collection")
_LIMITS = ("max_running", "rate", "burst", "weight")


class GatesView(View):
    tag = "gates"
    operations = {
        "GET": Operation(
            id="list_gates",
            summary="The gates that are shut",
            permissions=(permissions.VIEW_TYPE,),
            answers={200: Answer(description="The gates.", serializer=_GATE_PAGE)},
        ),
        "POST": Operation(
            id="set_gate",
            summary="Hold what waits, drop it, or let it go again",
            description="Of a Type, of a lane of it (with `collection`), or of everything "
            "(without `type`). The answer is all gates that are shut then, and what was "
            "replaced. With `expected`, nothing that somebody else has set meanwhile is.",
            permissions=(permissions.VIEW_TYPE, permissions.OPERATE),
            body=SetGateSerializer,
            answers={200: Answer(description="The gates.", serializer=GatesSetSerializer)},
            problems=(404, 409, 413, 415, 422),
        ),
    }

    def get(self, request):
        return self.whole([documents.gate(row) for row in queue.gates()])

    def post(self, request):
        given = _object(request, (*_PLACE, "mode", "reason", "until", "expected"))
        mode = given.pop("mode", None)
        errors = _texts(given, ("type", "collection", "reason"))
        if not isinstance(mode, str) or mode not in _VERBS:
            errors.append(("mode", f"It must be one of {', '.join(_VERBS)}."))
        if given.get("until") is None:
            given.pop("until", None)
        elif mode == "open":
            errors.append(("until", "A gate that is opened does not open by itself."))
        else:
            given["until"] = _moment(errors, given["until"])
        given["expected"] = _expected(errors, given.get("expected"))
        if errors:
            raise wrong(BODY, errors)
        gate = _VERBS[mode](**given, by=actor(request, API))
        was = gate if mode == "open" else gate.was
        shut = queue.gates()
        of = [given.get(name) for name in _PLACE]
        return _set(
            [documents.gate(row) for row in shut],
            told=told.of_gate(mode, *of, was, shut),
            was=None if was is None else documents.gate(was),
        )


class LimitsView(View):
    tag = "limits"
    operations = {
        "GET": Operation(
            id="list_limits",
            summary="What is limited, and weights of Types",
            permissions=(permissions.VIEW_TYPE,),
            answers={200: Answer(description="The limits.", serializer=_LIMIT_PAGE)},
        ),
        "POST": Operation(
            id="set_limit",
            summary="Limit a Type or a lane, over all daemons",
            description="What is not given stays as it is; null is none. With `default` the "
            "limits are left to the code again. The answer is all limits that there are then.",
            permissions=(permissions.VIEW_TYPE, permissions.OPERATE),
            body=SetLimitSerializer,
            answers={200: Answer(description="The limits.", serializer=LimitsSetSerializer)},
            problems=(404, 413, 415, 422),
        ),
    }

    def get(self, request):
        return self.whole([documents.limit(row) for row in queue.limits()])

    def post(self, request):
        given = _object(request, (*_PLACE, *_LIMITS, "default"))
        default = given.pop("default", False)
        errors = _texts(given, _PLACE)
        if given.get("type") is None:
            errors.append(("type", "The identifier of a Type is needed, as text."))
        if not isinstance(default, bool):
            errors.append(("default", "It must be true or false."))
        elif default and given.keys() & set(_LIMITS):
            errors.append(("default", "It takes no limits beside it."))
        if errors:
            raise wrong(BODY, errors)
        for name in ("max_running", "burst"):
            if isinstance(given.get(name), float) and given[name].is_integer():
                given[name] = int(given[name])  # the same number, as JSON has it
        by = actor(request, API)
        done = (queue.unlimit if default else queue.limit)(**given, by=by)
        return _set(
            [documents.limit(row) for row in queue.limits()],
            told=told.of_unlimit(done) if default else "",
        )


def _set(results, **more):
    """Answer with a whole list, and what was done."""
    return Response({"next": None, "previous": None, "results": results} | more)


def _object(request, names):
    """Return the body, a JSON object with no other names. Raises ParseError or ProblemError."""
    if request.stream is None:
        raise ParseError("There is no body: it says what is to be set.")
    if not isinstance(request.data, dict):
        raise wrong(BODY, [("", "It must be a JSON object.")])
    errors = [
        (name, f"There is no field {name!r}.{did_you_mean(name, names)}")
        for name in request.data
        if name not in names
    ]
    if errors:
        raise wrong(BODY, errors)
    return dict(request.data)


def _texts(given, names):
    """What is wrong with texts; None is none, and taken out where nothing is the same."""
    errors = []
    for name in names:
        if name == "reason" and given.get(name, "") is None:
            del given[name]
        elif not isinstance(given.get(name), (str, type(None))):
            errors.append((name, f"{name} must be text."))
    return errors


def _moment(errors, value):
    """A time with an offset as text, or a number of seconds from now."""
    try:
        return moments.read("until", value)
    except InvalidOption as error:
        errors.append(("until", str(error)))
        return None


def _expected(errors, value):
    """A mode, or a time with an offset; None is none."""
    if value is None or value in ("hold", "drop", "open"):
        return value
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is not None:
            return time
    except (TypeError, ValueError):
        pass
    hint = "It must be hold, drop or open, or the time since when the gate has been as it is."
    errors.append(("expected", hint))
    return None
