"""One entry of the table of verbs: a verb with its parameters, as data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...words.kinds import Kind

OPERATE = "atp.operate"


def always(*_: object) -> bool:
    """Whether a verb makes a difference that does so in any state."""
    return True


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a verb.

    ``field`` is its name in the API where that differs. With ``can_be_none``, None is a
    value of its own: "no limit". A parameter that is not given is not passed. One that is not
    ``in_forms`` is for programs.
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
    """The outcome of a verb: ``told`` in a sentence, ``value`` as the verb returned it."""

    told: str
    value: object = None


def _nothing(subject: object) -> dict[str, Any]:
    return {}


def _never(subject: object) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One verb, and what it is done to: its subject: an Instance, a scope, a daemon, a
    schedule, a graph or a downstream.

    ``call(subject, by=…, **values)`` does it, and ``told(subject, value)`` is the sentence about
    what ``call`` returned. ``current(subject)`` are the values that a form begins with.
    ``asks_first(subject)`` tells whether a person is asked whether that is meant; what
    ``is_final`` cannot be undone, and is asked always.
    ``permission`` is needed beside that to see the subject. ``method`` is its method of HTTP:
    with POST it has an address below the subject's, else it is done at that of the subject.
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
    permission: str = OPERATE
    method: str = "POST"

    @property
    def id(self) -> str:
        """The name as an identifier of code."""
        return self.name.replace("-", "_")

    @property
    def has_page(self) -> bool:
        """Whether it needs more than a button: a form, or a question."""
        return self.is_final or bool(self.parameters)

    def perform(self, subject: Any, by: str, **values: Any) -> Outcome:
        """Do it; returns the :class:`Outcome`. Raises what the verb raises."""
        value = self.call(subject, by=by, **values)
        return Outcome(self.told(subject, value), value)

    def permissions(self, subject: Any) -> tuple[str, ...]:
        """Return the permissions that it takes with this subject."""
        return (self.permission,)
