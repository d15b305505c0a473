"""ATPTask: a task with the parameters of a Type, and the options of an enqueue."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from enum import Enum
from typing import Any

from ..authoring.parameters import KNOWN
from ..words.hints import did_you_mean
from ..words.options import OptionValues
from .frameworks import DEFAULT_QUEUE_NAME, Task


class Unset(Enum):
    """The value of a parameter that is not given, since None has a meaning of its own."""

    UNSET = "not given"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET

# What a task of django.tasks has already, with its name there: queue_name is the collection.
STANDARD = {"priority": "priority", "collection": "queue_name", "run_after": "run_after"}
# The parameters of a Type that a task may be declared with.
PARAMETERS = tuple(name for name in KNOWN if name not in STANDARD)
# The options of an enqueue that using() takes beside its own.
OPTIONS = tuple(
    name for name in OptionValues.__annotations__ if name not in (*STANDARD, *PARAMETERS)
)

# Django 6.0 has these defaults in its decorator only.
_DEFAULTS = {
    "priority": 0,
    "backend": "default",
    "queue_name": DEFAULT_QUEUE_NAME,
    "run_after": None,
    "takes_context": False,
}

_Base: Any = make_dataclass(
    "_Base",
    [
        *((name, Any, field(default=value)) for name, value in _DEFAULTS.items()),
        *((name, Any, field(default=UNSET)) for name in (*PARAMETERS, *OPTIONS)),
    ],
    bases=(Task,),
    frozen=True,
    slots=True,
    kw_only=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ATPTask(_Base):
    """A task that ATP runs.

    ``@task(timeout=60, max_retries=3)`` takes the parameters of a Type; :meth:`using` takes the
    options of an enqueue. A value that is not given is UNSET.
    """

    def using(self, **changes: Any) -> Any:
        """Return this task with other values.

        Their names are those of ``django.tasks``, and ``identifier``, ``existing``, ``unique``,
        ``start_before`` and ``created_by`` of :class:`~atp.words.options.Options`. Raises
        TypeError for other names.
        """
        own = {name: changes.pop(name) for name in OPTIONS if name in changes}
        for name in changes:
            if name not in _USING:
                raise TypeError(f"using() has no argument {name!r}.{_instead(name)}")
        task = Task.using(self, **changes)
        return replace(task, **own) if own else task

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a Type that were given."""
        return {name: v for name in PARAMETERS if (v := getattr(self, name)) is not UNSET}

    @property
    def options(self) -> dict[str, Any]:
        """The options of an enqueue that were given."""
        return {name: v for name in OPTIONS if (v := getattr(self, name)) is not UNSET}


_USING = ("priority", "queue_name", "run_after", "backend")


def _instead(name: str) -> str:
    if name in PARAMETERS:
        return f" It is a parameter of the Type: say it in @task({name}=…)."
    if name in STANDARD:
        return f" It is called {STANDARD[name]!r} here."
    return did_you_mean(name, (*_USING, *OPTIONS))
