"""Map each class of exceptions to a problem, with an HTTP status and a title.

The pages show a problem as HTML. The API answers with a problem document (RFC 9457).
"""

from dataclasses import dataclass

from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404

from .. import exceptions as atp
from ..operations import base


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error in a request, as the client sees it.

    ``name`` is a word for the kind of problem, and ``title`` describes the kind. ``detail`` is a
    sentence about this request. ``errors`` are pairs of the name of a wrong field and a sentence.
    """

    status: int
    name: str
    title: str
    detail: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    # Seconds after which the client may try again; None if unknown.
    retry_after: float | None = None


# The first class of which an exception is an instance decides its meaning.
_Classes = type[BaseException] | tuple[type[BaseException], ...]
MEANINGS: tuple[tuple[_Classes, int, str, str], ...] = (
    (atp.NotMigrated, 503, "not-migrated", "The database has not been migrated"),
    (atp.UnknownInstance, 404, "unknown-instance", "There is no such Instance"),
    (atp.UnknownDaemon, 404, "unknown-daemon", "There is no such daemon"),
    (atp.UnregisteredHandler, 409, "no-handler", "This process has no handler for the Type"),
    (atp.UnknownType, 404, "unknown-type", "There is no such Type"),
    (atp.UnknownSchedule, 404, "unknown-schedule", "There is no such schedule"),
    (atp.UnknownGraph, 404, "unknown-graph", "There is no such graph"),
    (atp.UnknownDownstream, 404, "unknown-downstream", "There is no such downstream"),
    (atp.DownstreamChanged, 409, "downstream-changed", "The downstream has changed"),
    (atp.UnknownErrorGroup, 404, "unknown-error-group", "There is no such error group"),
    (atp.InvalidPageKey, 400, "invalid-page-key", "There is no such page"),
    (atp.InvalidSelection, 400, "invalid-selection", "The list cannot be filtered so"),
    (atp.InvalidInputs, 422, "invalid-inputs", "The inputs do not fit"),
    (atp.InvalidOption, 422, "invalid-option", "An option is not possible"),
    (atp.InvalidGate, 422, "invalid-gate", "The gate cannot be set so"),
    (atp.GateChanged, 409, "gate-changed", "Somebody else has set the gate"),
    (atp.InvalidLimit, 422, "invalid-limit", "The limit is not possible"),
    (atp.InvalidSchedule, 422, "invalid-schedule", "The schedule is not possible"),
    (atp.IllegalSchedule, 409, "illegal-schedule", "The schedule does not allow it"),
    (atp.ScheduleChanged, 409, "schedule-changed", "Somebody else has changed the schedule"),
    (atp.InvalidGraph, 422, "invalid-graph", "The graph is not possible"),
    (atp.GraphClosed, 409, "graph-closed", "Nothing can be added to the graph"),
    (atp.NotSerializable, 422, "not-serializable", "A value cannot be kept"),
    (atp.CorruptData, 422, "unreadable", "A value cannot be read"),
    (atp.TooLarge, 422, "too-large", "A value is too large"),
    (atp.QueueFull, 429, "queue-full", "Too many wait already"),
    (atp.UniqueTaken, 409, "unique-taken", "The unique key is taken"),
    (atp.DuplicateIdentifier, 409, "duplicate-identifier", "The identifier is taken"),
    (atp.NotPausable, 409, "not-pausable", "What it does cannot be paused"),
    (atp.IllegalTransition, 409, "illegal-transition", "The state does not allow it"),
    (atp.IllegalOrder, 409, "illegal-order", "What the daemon is doing does not allow it"),
    (PermissionDenied, 403, "permission-denied", "You may not do this"),
    (Http404, 404, "not-found", "There is nothing here"),
    (RequestDataTooBig, 413, "request-too-large", "The request is too large"),
    (BadRequest, 400, "bad-request", "The request cannot be understood"),
    (SuspiciousOperation, 400, "bad-request", "The request cannot be understood"),
    ((OperationalError, InterfaceError), 503, "no-database", "The database does not answer"),
)


def problem_of(error: BaseException) -> Problem | None:
    """Return the :class:`Problem` for an exception, or None if the exception is a bug in ATP."""
    if lacks := base.describe_cause(error):
        return problem_of(atp.NotMigrated(lacks))
    for kind, status, name, title in MEANINGS:
        if isinstance(error, kind):
            return Problem(
                status=status,
                name=name,
                title=title,
                detail=_describe_error(error, status),
                errors=_field_errors(error),
                retry_after=getattr(error, "retry_after", None),
            )
    if type(error) is DatabaseError:
        # psycopg2 raises this if the connection is lost while it waits for the result.
        return problem_of(OperationalError(*error.args))
    return None


def status_of(error: atp.ATPError) -> int:
    """Return the HTTP status for one of ATP's exceptions. If it has none, raise the exception."""
    problem = problem_of(error)
    if problem is None:
        raise error
    return problem.status


def _describe_error(error: BaseException, status: int) -> str:
    # Do not show a driver's message about a connection, because it names hosts and users.
    is_from_driver = status == 503 and not isinstance(error, atp.ATPError)
    return "Try again later." if is_from_driver else str(error)


def _field_errors(error: BaseException) -> tuple[tuple[str, str], ...]:
    if isinstance(error, atp.InvalidInputs) and error.problems:
        return tuple((f"inputs.{path}".rstrip("."), text) for path, text in error.problems)
    if isinstance(error, atp.InvalidInputs) and error.argument is not None:
        return ((f"inputs.{error.argument}", str(error)),)
    if isinstance(error, atp.InvalidSelection):
        return tuple(error.errors)
    named = (atp.InvalidSchedule, atp.InvalidGraph)
    if isinstance(error, named) and error.parameter is not None:
        return ((error.parameter, str(error)),)
    return ()
