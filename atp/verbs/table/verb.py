"""One entry of the table of verbs: a verb with its parameters, as data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...words.kinds import Kind

# The permissions to act. Each is needed beside the permission to see what is acted upon.
# To enqueue Instances.
ENQUEUE = "atp.enqueue"
# To act on Instances, graphs and error groups, and to run slots of schedules.
OPERATE = "atp.operate"
# To decide what runs at all: gates, limits, downstreams, schedules, tailers and daemons.
CONTROL = "atp.control"
# To remove Instances for good.
DELETE = "atp.delete_instance"


def always(*_: object) -> bool:
    """Return True: the ``is_allowed`` of verbs that are allowed in any state."""
    return True


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a verb.

    ``field`` is its name in the API, if that differs. With ``can_be_none``, None is a value of its
    own, as "no limit". A parameter that the caller does not give is not passed to ``call``. With
    ``in_forms`` False it is only for programs.
    """

    name: str
    kind: Kind
    help: str
    label: str = ""
    field: str = ""
    is_required: bool = False
    can_be_none: bool = False
    in_forms: bool = True

    @property
    def json_name(self) -> str:
        return self.field or self.name


@dataclass(frozen=True)
class Outcome:
    """The outcome of a verb: its return value ``value``, and ``told``, a sentence about it."""

    told: str
    value: object = None


def _nothing(subject: object) -> dict[str, Any]:
    return {}


def _never(subject: object) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One verb. Its subject is an Instance, a scope, a daemon, a schedule, a graph, a downstream, …

    ``call(subject, by=…, **values)`` performs it. ``told(subject, value)`` returns a sentence about
    the value that ``call`` returned. ``current(subject)`` returns the initial values of a form.
    ``asks_first(subject)`` tells whether a person has to confirm first; a verb that ``is_final``
    cannot be undone, and always has to be confirmed.
    ``phrase`` is the label with a place for the subject, where that does not just follow it.
    ``permission`` is needed beside the permission to see the subject, and so is ``permission_too``
    if it is given. ``method`` is its HTTP method: a POST goes to an address below the subject's,
    any other to the address of the subject.
    """

    name: str
    label: str
    explanation: str
    call: Callable[..., Any]
    told: Callable[[Any, Any], str]
    parameters: tuple[Parameter, ...] = ()
    current: Callable[[Any], dict[str, Any]] = _nothing
    asks_first: Callable[[Any], bool] = _never
    is_final: bool = False
    phrase: str = ""
    permission: str = OPERATE
    permission_too: str = ""
    method: str = "POST"

    @property
    def id(self) -> str:
        """The name as an identifier in code."""
        return self.name.replace("-", "_")

    def said_of(self, subject: str) -> str:
        """Return the label with a subject, as "Run an Instance now"."""
        return (self.phrase or f"{self.label} {{}}").format(subject)

    @property
    def has_page(self) -> bool:
        """Whether a person needs more than a button for it: a form, or a question to confirm."""
        return self.is_final or bool(self.parameters)

    def perform(self, subject: Any, by: str, **values: Any) -> Outcome:
        """Perform the verb; return the :class:`Outcome`. Raises what the verb raises."""
        value = self.call(subject, by=by, **values)
        return Outcome(self.told(subject, value), value)

    def permissions(self, subject: Any) -> tuple[str, ...]:
        """Return the permissions that the verb needs on this subject."""
        return self.needs

    @property
    def needs(self) -> tuple[str, ...]:
        """The permissions that the verb needs on any subject."""
        return (self.permission, *filter(None, [self.permission_too]))
