"""The log messages about an attempt: why it ended, what it was asked, which writes were refused.

As for :mod:`.log_messages`: call them through this module; no code compares them.
"""

from collections.abc import Sequence

from . import wording

_ROLLED_BACK = "all that it wrote was rolled back"
# The maximum number of processes left running that a message names.
NAMED = 5


# Requests to an Instance, and ends that no handler has caused.


def asked(request: str) -> str:
    return f"{request} requested"


def cancelled(who: str = "") -> str:
    return f"cancelled by {who}" if who else "cancelled"


def missed() -> str:
    return "not started before its start_before"


def given_up(restarts: int, allowed: int, lost: int, last: str) -> str:
    """``last`` is the reason why the last of the attempts was lost."""
    why = f"{lost} attempts were lost before they were seen running"
    if restarts > allowed:
        were = "1 attempt was" if restarts == 1 else f"{restarts} attempts were"
        why = f"{were} lost while running (restarts allowed: {allowed})"
    return f"given up after {why}; the last attempt: {last or 'reason unknown'}"


# The reasons why an attempt was lost, or handed back.


def daemon_stopped() -> str:
    return "the daemon stopped"


def daemon_stopping() -> str:
    return "the daemon is stopping"


def daemon_quiet() -> str:
    return "the daemon was told to go quiet"


def daemon_ended() -> str:
    return "the daemon has ended"


def daemon_lost(name: object) -> str:
    return f"daemon {name} was lost"


def supervisor_killed() -> str:
    return "its daemon was lost: the supervisor died"


def lease_over() -> str:
    return "the daemon's lease could not be renewed"


def dispatcher_ended() -> str:
    return "its dispatcher ended"


def dispatcher_died() -> str:
    return "its dispatcher died"


def no_worker_free() -> str:
    return "no worker was free"


def worker_died(how: str) -> str:
    return f"its worker {how}"


def worker_died_early() -> str:
    return "its worker died before the handler began"


def worker_stuck(*, is_ready: bool = True) -> str:
    return f"it {'started none of the tasks it was given' if is_ready else 'was not ready in time'}"


def made_room() -> str:
    return "its place was needed for a paused task that goes on"


def task_taken_away() -> str:
    return "its Task was taken away"


def timed_out(seconds: float) -> str:
    return f"its time-out of {seconds:g} s has passed"


def too_much_memory(taken: float, others: int, limit: float) -> str:
    """``others`` is the number of child processes of the attempt."""
    who = f"it and its {others} child processes" if others > 1 else "it"
    if others == 1:
        who = "it and its child process"
    return (
        f"{who} took {wording.size(taken)} of memory, its Type allows {wording.size(limit)} "
        "(max_memory)"
    )


def killed_after_grace(seconds: float) -> str:
    return f"it did not end in its grace of {seconds:g} s, and was killed"


def with_processes(count: int) -> str:
    return f"with {count} process{'es' if count > 1 else ''} that it had started"


def resumed_to_end(why: str) -> str:
    return f"resumed so that it can end: {why}"


# How a handler ended.


def interrupted() -> str:
    return "the handler was interrupted"


def asked_retry() -> str:
    return "the handler asked to try again"


def asked_defer() -> str:
    return "the handler asked to be deferred"


def said_fatal() -> str:
    return "the handler raised Fatal"


def left_transaction_open() -> str:
    return "the handler left a transaction open, which was rolled back"


def no_connection() -> str:
    return "no connection to the database"


def not_stored(error: str) -> str:
    return f"a message or the response of this attempt could not be stored: {error}"


def retries_used_up(retries: int, allowed: int) -> str:
    return f"(retries used up: {retries} of {allowed})"


def no_retries() -> str:
    return "(no retries are allowed: max_retries is 0)"


def left_behind(names: Sequence[str], count: int, *, ended: bool = True) -> str:
    """``names`` are the names of the ``count`` processes that the attempt has left running."""
    named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    processes = "1 process" if count == 1 else f"{count} processes"
    done = ("was ended" if count == 1 else "were ended") if ended else "could not be ended"
    advice = " (keep_processes=True on its Type would prevent this)" if ended else ""
    return f"{processes} that it left behind {done}: {named}{advice}"


def left_in_loop() -> str:
    return "what the handler left in its event loop did not end when it was cancelled"


def left_out(count: int) -> str:
    return f"{count} messages of this attempt are left out here"


# Steps of a handler.


def step_repeated(name: str, attempt: int) -> str:
    return f"step {name} is repeated: attempt {attempt} had begun it and kept no result"


def write_refused(what: str) -> str:
    return f"{what} was refused: its Task was taken away"


def write_waits(what: str, why: str = "") -> str:
    """``why`` is the error of the database; without it, another session has locked the Task."""
    why = why or "another session has locked the Task"
    return f"{what} cannot be written yet: {why}"


def asleep(name: str) -> str:
    return f"asleep ({name})"


# Writes that the fence refused.


_DID = {
    "start": "started",
    "pause": "was paused",
    "resume": "went on after a pause",
    "finish": "finished",
    "fail": "failed",
    "retry": "asked to be tried again",
    "defer": "asked to be deferred",
    "release": "was handed back",
    "expire": "was lost",
}


def refused(attempt: int, event: str | None, seconds: float | None) -> str:
    """``event`` is None for a note; ``seconds`` is the time since the Task was taken away.

    ``seconds`` is None if the time of the event is unknown.
    """
    return f"{_did(attempt, event)} {_when(seconds)}"


def refused_after_end(attempt: int, event: str | None) -> str:
    return f"{_did(attempt, event)} after it had ended: refused"


def late(attempt: int, event: str | None, seconds: float | None, *, transactional: bool) -> str:
    effects = _ROLLED_BACK if transactional else "its effects may have happened twice"
    return f"{_did(attempt, event)} {_when(seconds)}; {effects}"


def rolled_back() -> str:
    return _ROLLED_BACK


def _did(attempt: int, event: str | None) -> str:
    if event is None:
        return f"attempt {attempt} reported progress, messages or files"
    return f"attempt {attempt} {_DID.get(event, f'asked for {event}')}"


def _when(seconds: float | None) -> str:
    if seconds is None:
        return "after its Task was taken away"
    if seconds < 0:
        return "and could not record this before its Task was taken away"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} s after its Task was taken away"
