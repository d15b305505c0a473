"""What an exception of a handler means; the fingerprint of a failure."""

import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from ... import messages
from ...authoring import logs, retrying
from ...authoring.logs import describe_exception, exception_message
from ...authoring.steps import Asleep
from ...exceptions import (
    Defer,
    Fatal,
    IncompatibleInputs,
    Interrupted,
    Retry,
    Throttled,
    Unavailable,
    Unusable,
    UnusableResult,
    dotted_path,
)
from ...operations.registry import registry
from ...store import failures
from ...store.values import Attempt, Failed
from ..outcomes import Kind, Outcome

# The outcome of an attempt that raised: the class of the exception decides.

# The delay, in seconds, of a Defer without one: a subclass may not call Defer's constructor.
DEFERRED = 60.0

# An outcome, and the exception to be reported, or None.
_Ending: TypeAlias = tuple[Outcome, BaseException | None]


class LeftOpen(Exception):
    """The handler returned with a transaction open."""

    def __init__(self) -> None:
        super().__init__(messages.left_transaction_open())


def outcome_of(attempt: Attempt, error: BaseException) -> _Ending:
    """Return the Outcome of an attempt that raised, and the exception to be reported, or None.

    To read the exception's attributes may run code of the application. So only its class
    decides, and attributes that cannot be read are left out.
    """
    spoken = logs.deciding_exception(error)
    for kind, ending in _ENDINGS.items():
        if logs.is_a(spoken, kind):
            return ending(attempt, spoken)
    outcome = _raised(attempt, error)
    return outcome, None if outcome.kind is Kind.UNAVAILABLE else error


def _asleep(attempt: Attempt, asleep: Asleep) -> _Ending:
    return Outcome(Kind.DEFER, exception_message(asleep), asleep.after), None


def _interrupted(attempt: Attempt, cut_short: Interrupted) -> _Ending:
    message = exception_message(cut_short) or messages.interrupted()
    return Outcome(Kind.INTERRUPTED, message, **_cause(attempt, cut_short)), None


def _retried(attempt: Attempt, asked: Retry) -> _Ending:
    message = exception_message(asked) or messages.raised_retry()
    return Outcome(Kind.RETRY, message, logs.exception_delay(asked), **_cause(attempt, asked)), None


def _throttled(attempt: Attempt, asked: Throttled) -> _Ending:
    """Return THROTTLED, or DEFER if the Type has no downstream."""
    if not registry.downstream(attempt.type):
        return _deferred(attempt, asked, messages.downstream_refused())
    message = exception_message(asked) or messages.downstream_refused()
    return Outcome(Kind.THROTTLED, message, logs.exception_delay(asked, "asked")), None


def _deferred(attempt: Attempt, asked: Defer, default: str | None = None) -> _Ending:
    message = exception_message(asked) or default or messages.raised_defer()
    after = logs.exception_delay(asked, is_from_zero=False)
    return Outcome(Kind.DEFER, message, DEFERRED if after is None else after), None


def _refused(attempt: Attempt, refusal: Fatal) -> _Ending:
    message = exception_message(refusal) or messages.raised_fatal()
    return Outcome(Kind.FATAL, message, **_cause(attempt, refusal)), None


def _misfit(attempt: Attempt, misfit: IncompatibleInputs) -> _Ending:
    signature = registry.get(attempt.type).fingerprint
    return Outcome(Kind.MISFIT, exception_message(misfit), signature=signature), None


def _unusable(attempt: Attempt, unusable: Unusable) -> _Ending:
    error: Any = logs.exception_cause(unusable)
    return Outcome(Kind.FATAL, exception_message(error), **_cause(attempt, error)), error


def _unusable_result(attempt: Attempt, unusable: UnusableResult) -> _Ending:
    return Outcome(Kind.FATAL, exception_message(unusable), **_cause(attempt, unusable)), unusable


def _left_open(attempt: Attempt, left: LeftOpen) -> _Ending:
    return _raised(attempt, left, str(left)), left


# The first class that an exception is an instance of decides.
_ENDINGS: dict[type[BaseException], Callable[[Attempt, Any], _Ending]] = {
    Asleep: _asleep,
    Interrupted: _interrupted,
    Retry: _retried,
    Throttled: _throttled,
    Defer: _deferred,
    Fatal: _refused,
    IncompatibleInputs: _misfit,
    Unusable: _unusable,
    UnusableResult: _unusable_result,
    LeftOpen: _left_open,
}


def _raised(attempt: Attempt, error: BaseException, message: str | None = None) -> Outcome:
    """Return the outcome of an unexpected exception; its Type decides whether to retry."""
    task_type: Any = registry.get(attempt.type) if attempt.type in registry else None
    if registry.downstream(attempt.type) and retrying.is_downstream_failure(task_type, error):
        return _unavailable(error)
    message = describe_exception(error) if message is None else message
    why = retrying.why_not_retried(task_type, error) if task_type is not None else ""
    kind, text = (Kind.LAST, f"{message}\n({why})") if why else (Kind.ERROR, message)
    return Outcome(kind, text, **_cause(attempt, error))


def _cause(attempt: Attempt, error: BaseException) -> dict[str, Any]:
    """Return the values of an Outcome that identify the exception and its cause."""
    return {"raised": dotted_path(error), "failed": failed(attempt.type, error)}


def _unavailable(error: BaseException) -> Outcome:
    """Return the outcome of an attempt whose downstream failed, which only the log reports."""
    spoken = logs.unwrap_single(error)
    if logs.is_a(spoken, Unavailable):
        message = exception_message(spoken) or messages.downstream_failed()
        after = logs.exception_delay(spoken, "asked")
        return Outcome(Kind.UNAVAILABLE, message, after, raised=dotted_path(spoken))
    return Outcome(Kind.UNAVAILABLE, describe_exception(error), raised=dotted_path(error))


# Fingerprints: failures with the same cause get the same one. The worker computes it.

# The number of innermost frames, and of exceptions in the chain of causes, that count.
FRAMES, CAUSES = 10, 10
# The number of characters of the message that count.
LONGEST = 10_000

_OWN = str(Path(__file__).resolve().parents[2]) + "/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")
# Before Python 3.12 comprehensions had frames of their own.
_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


def failed(type: str, error: BaseException) -> Failed:
    """Return the cause of a failure of a Type, as :class:`~atp.store.values.Failed`.

    If the exception has a ``fingerprint`` (as Fatal may), that alone counts. Otherwise the
    classes of the exception and its causes count, and the application's functions in their
    tracebacks; without such functions, the message. Line numbers do not count, so that code
    above may change.
    """
    exception = dotted_path(error)
    text = (logs.exception_text(error) or "")[:LONGEST]
    title = f"{logs.exception_name(error)}: {text}".removesuffix(": ")
    given = logs.exception_attribute(error, "fingerprint")
    given = str.__str__(given) if isinstance(given, str) else ""
    if given:
        return failures.failed(type, ("given", given), exception=exception, title=title)
    causes = list(_causes(error))
    frames = _frames(causes, _package(type))
    about = frames or [failures.plain(text)]
    parts = ("raised", *map(dotted_path, causes), "at", *about)
    return failures.failed(type, parts, exception=exception, title=title)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its chain of causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(seen) < CAUSES:
        seen.add(id(error))
        yield error
        error = logs.exception_cause(error)


def _package(type: str) -> str:
    """Return the top package of a Type's handler, which belongs to the application; "" if none."""
    module = registry.get(type).handler_path if type in registry else ""
    name = module.partition(".")[0]
    return "" if name == "atp" else name


def _frames(causes: Iterable[BaseException], package: str) -> list[str]:
    """Return the names of the application's innermost functions in the tracebacks."""
    found: deque[str] = deque(maxlen=FRAMES)
    for error in causes:
        traceback = logs.exception_trace(error)
        while traceback is not None:
            frame, traceback = traceback.tb_frame, traceback.tb_next
            name = frame.f_globals.get("__name__")
            name = name if type(name) is str else ""
            is_own = package and name.partition(".")[0] == package
            if is_own or _is_of_application(frame.f_code.co_filename):
                function = frame.f_code.co_qualname
                if not function.endswith(_INLINED):
                    found.append(f"{name}.{function}")
    return list(found)


@lru_cache(maxsize=4096)
def _is_of_application(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    if any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith((_OWN, *_STANDARD))
