"""Every sentence that ATP writes to LogRecords and slots.

The sentences are for people, and no code compares them. Code decides by the kind and the detail of
a LogRecord. Call the functions through this module (``messages.missed()``), so that the tests can
replace them (``python -m tests.run --nonsense``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from . import text
from .commands import DaemonCommand
from .states import Event

if TYPE_CHECKING:
    from .models import Gate
    from .store.facts import Fill, Session

# The maximum number of processes left running that a message names.
MAX_PROCESSES_NAMED = 5
# The maximum number of removed Instances that one message names.
MAX_INSTANCES_NAMED = 100
_ROLLED_BACK = "all that it wrote was rolled back"
_TAKEN_LATER = "its Tasks will be taken away after the time of one lease"


# Downstreams.


def downstream_refused() -> str:
    return "its downstream refuses calls"


def downstream_failed() -> str:
    return "its downstream fails"


def downstream_takes_no_more(name: str) -> str:
    return f"the downstream {name} takes no more calls"


def downstream_locked() -> str:
    return "its downstream refused a call, which cannot be recorded while the downstream is locked"


def downstream_changed(was: str, state: str, per_second: float, not_before: datetime | None) -> str:
    words = f"{was} → {state}"
    if state == "throttled":
        words += f", {per_second:.3g} calls a second"
    if state == "open" and not_before is not None:
        words += f", no call before {not_before.isoformat(timespec='seconds')}"
    return words


def downstream_rate_limited(changes: Mapping[str, float | None]) -> str:
    """Say which rate limits of a downstream an operator has set.

    ``changes`` maps the name of each limit to calls a second; None removes the limit.
    """
    return ", ".join(
        f"{name}: {'none' if value is None else f'{value:g}/s'}" for name, value in changes.items()
    )


def session_ended(pid: int, application: str, user: str) -> str:
    """Say which session of the database an operator has ended."""
    of = f" of {application}" if application else ""
    return f"session {pid}{of} (user {user or 'unknown'}) was ended: others waited for it"


def downstream_reset() -> str:
    return "reset: treated as healthy"


def downstream_breaker_opened() -> str:
    return "breaker opened: no calls for now"


# Commands to an attempt, and ends that no handler caused.


def command_sent(request: str) -> str:
    return f"{request} requested"


def cancelled(who: str = "") -> str:
    return f"cancelled by {who}" if who else "cancelled"


def missed() -> str:
    return "not started before its start_before"


def attempts_given_up(restarts: int, allowed: int, lost: int, last: str) -> str:
    """Say why an Instance became FAILED after too many of its attempts were lost.

    ``last`` says why the last attempt was lost; it is "" if nobody knows.
    """
    why = f"{lost} attempts were lost before they were seen running"
    if restarts > allowed:
        were = "1 attempt was" if restarts == 1 else f"{restarts} attempts were"
        why = f"{were} lost while running (restarts allowed: {allowed})"
    return f"given up after {why}; the last attempt: {last or 'reason unknown'}"


# Why an attempt was lost or handed back.


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


def engine_away() -> str:
    return "the engine that was to run it does not answer"


def follower_died() -> str:
    return "the process that followed it has died"


def leave_over() -> str:
    return "the host on which it ran was not heard of for too long"


def messages_lost(count: int) -> str:
    return f"{count} messages of this attempt were lost while its link was cut"


def type_unknown_there(type: str) -> str:
    return f"the cluster does not know the Type {type}: its code is not there"


def no_room() -> str:
    return "the resources that it takes were in use"


def worker_died(how: str) -> str:
    return f"its worker {how}"


def loop_ended(why: str, guilty: str) -> str:
    """Say that a loop ended because of another attempt, whose Instance is ``guilty`` if known."""
    other = f"the attempt of {guilty}" if guilty else "another attempt"
    return f"its loop was ended because of {other}: {why}"


def loop_died(how: str) -> str:
    return f"{worker_died(how)}, and nobody knows which attempt of the loop is to blame"


def loop_blocked_by_callback() -> str:
    return "its loop was blocked, but by no step of an attempt"


def loop_blocked(seconds: float) -> str:
    return f"it blocked its loop for {seconds:.1f} s"


def worker_died_early() -> str:
    return "its worker died before the handler began"


def worker_stuck(*, is_ready: bool = True) -> str:
    return f"it {'started none of the tasks it was given' if is_ready else 'was not ready in time'}"


def evicted_for_resume() -> str:
    return "its place was needed to resume a paused task"


def task_taken_away() -> str:
    return "its Task was taken away"


def timed_out(seconds: float) -> str:
    return f"its time-out of {seconds:g} s has passed"


def too_much_memory(taken: float, others: int, limit: float) -> str:
    """Say that an attempt used more memory than its Type allows.

    ``taken`` and ``limit`` are in bytes; ``others`` is the number of the worker's child processes.
    """
    who = f"it and its {others} child processes" if others > 1 else "it"
    if others == 1:
        who = "it and its child process"
    return (
        f"{who} took {text.size(taken)} of memory, its Type allows {text.size(limit)} (max_memory)"
    )


def killed_after_grace(seconds: float) -> str:
    return f"it did not end in its grace of {seconds:g} s, and was killed"


def with_processes(count: int) -> str:
    return f"with {count} process{'es' if count > 1 else ''} that it had started"


def resumed_to_end(why: str) -> str:
    return f"resumed so that it can end: {why}"


# The stack of a running attempt.


def stack(resident: int, seconds: float, busy: float | None) -> str:
    """Say how much memory and processor time the worker of an attempt uses.

    ``resident`` is in bytes; ``seconds`` is its processor time since its start. ``busy`` is the
    share of one processor that it lately used; None if that is unknown.
    """
    lately = "" if busy is None else f", lately {busy:.0%} of a processor"
    return f"stack: {text.size(resident)} resident, {seconds:.1f} s of processor time{lately}"


def stack_unavailable(why: str) -> str:
    """Say why a stack could not be taken; ``why`` is a constant of ``daemon/stacks.py``."""
    return {
        "stopped": "its worker is stopped, because the attempt is paused",
        "taken": "its handler uses the signal that asks for the stack",
    }.get(why, "its main thread did not answer in time")


def session(found: Session) -> str:
    """Say what the database session of an attempt does."""
    words = f"database session {found.pid}: {found.state or 'state unknown'}"
    if found.wait:
        words += f", waits for {found.wait_type} {found.wait}"
    if found.seconds is not None:
        words += f", its statement began {found.seconds:.1f} s ago"
    if found.blockers:
        words += f", blocked by session {', '.join(map(str, found.blockers))}"
    return words


# How a handler ended.


def interrupted() -> str:
    return "the handler was interrupted"


def raised_retry() -> str:
    return "the handler asked for a retry"


def raised_defer() -> str:
    return "the handler asked to be deferred"


def raised_fatal() -> str:
    return "the handler raised Fatal"


def left_transaction_open() -> str:
    return "the handler left a transaction open, which was rolled back"


def pause_refused(*, in_loop: bool, host: str) -> str:
    why = "its whole handler runs in one transaction"
    if in_loop:
        why = "it runs in a loop"
    elif host:
        why = "its executor runs it"
    return f"the attempt cannot be paused: {why}"


def stack_refused() -> str:
    return "no stack: the attempt runs in a loop, beside others"


def no_connection() -> str:
    return "no connection to the database"


def not_stored(error: str) -> str:
    return f"a message or the response of this attempt could not be stored: {error}"


def retries_used_up(retries: int, allowed: int) -> str:
    return f"(retries used up: {retries} of {allowed})"


def no_retries() -> str:
    return "(no retries are allowed: max_retries is 0)"


def processes_left_behind(names: Sequence[str], count: int, *, ended: bool = True) -> str:
    """Say that ATP ended the processes that an attempt left running, or could not end them.

    ``names`` are their names, and ``count`` is their number.
    """
    named = ", ".join(names[:MAX_PROCESSES_NAMED]) + (
        ", …" if len(names) > MAX_PROCESSES_NAMED else ""
    )
    processes = "1 process" if count == 1 else f"{count} processes"
    done = ("was ended" if count == 1 else "were ended") if ended else "could not be ended"
    advice = " (keep_processes=True on its Type would prevent this)" if ended else ""
    return f"{processes} that it left behind {done}: {named}{advice}"


def coroutines_left_behind() -> str:
    return "coroutines that the handler left in its event loop did not end when they were cancelled"


def messages_left_out(count: int) -> str:
    return f"{count} messages of this attempt are left out here"


# Steps.


def step_repeated(name: str, attempt: int) -> str:
    return f"step {name} is repeated: attempt {attempt} had begun it and stored no result"


def write_refused(what: str) -> str:
    return f"{what} was refused: its Task was taken away"


def write_waits(what: str, why: str = "") -> str:
    """Say that an attempt's write has to wait.

    ``why`` is the error of the database; it is "" if another session has locked the Task.
    """
    why = why or "another session has locked the Task"
    return f"{what} cannot be written yet: {why}"


def asleep(name: str) -> str:
    return f"asleep ({name})"


# Writes that the fence refused.


def attempt_refused(attempt: int, event: str | None, seconds: float | None) -> str:
    """Say that ATP refused a write of an attempt whose Task had been taken away.

    ``event`` is None for a progress update. ``seconds`` is the time from the loss of the Task to
    the event; None if the time of the event is unknown.
    """
    return f"{_describe_event(attempt, event)} {_describe_delay(seconds)}"


def refused_after_end(attempt: int, event: str | None) -> str:
    return f"{_describe_event(attempt, event)} after it had ended: refused"


def late_result(
    attempt: int, event: str | None, seconds: float | None, *, transactional: bool
) -> str:
    effects = _ROLLED_BACK if transactional else "its effects may have happened twice"
    return f"{_describe_event(attempt, event)} {_describe_delay(seconds)}; {effects}"


def rolled_back() -> str:
    return _ROLLED_BACK


def _describe_event(attempt: int, event: str | None) -> str:
    if event is None:
        return f"attempt {attempt} reported progress, messages or files"
    return f"attempt {attempt} {Event(event).label}"


def _describe_delay(seconds: float | None) -> str:
    if seconds is None:
        return "after its Task was taken away"
    if seconds < 0:
        return "and could not record this before its Task was taken away"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} s after its Task was taken away"


# Nodes of graphs, and attempts that add nodes to their graph.


def node_freed() -> str:
    return "all Instances that it waited for have ended"


def upstream_failed(name: str, reason: str) -> str:
    return f"{name} failed ({reason})"


def waits_corrected(was: int, count: int) -> str:
    return f"the number of nodes that it waits for was {was}, and is corrected to {count}"


def node_will_fail() -> str:
    return "a node that it waits for has failed: it will fail too"


def addition_refused() -> str:
    return "the nodes that this attempt wanted to add were refused: its Task was taken away"


def addition_waits(why: str = "") -> str:
    """Say that the nodes that an attempt adds to its graph cannot be written yet.

    ``why`` is the error of the database; it is "" if another session has locked a needed row.
    """
    why = why or "another session has locked the graph, a node or a Task"
    return f"the nodes that this attempt wants to add cannot be written yet: {why}"


# Changes of a waiting Instance.


def task_changed(steps: Sequence[tuple[str, Any, Any]], now: datetime) -> str:
    """Say how a waiting Task was changed.

    ``steps`` has a triple for each changed column: its name, its old value, and its new value.
    """
    return "; ".join(
        f"{name} {_describe_value(was, now)} → {_describe_value(value, now)}"
        for name, was, value in steps
    )


def inputs_replaced() -> str:
    return "inputs replaced by those of another enqueue"


def _describe_value(value: Any, now: datetime) -> object:
    if value == now:
        return "now"
    if hasattr(value, "astimezone"):
        return text.utc_text(value.astimezone(UTC))
    return "none" if value == "" else value


def dropped(gate: Gate) -> str:
    reason = f": {gate.reason}" if gate.reason else ""
    return f"dropped by {gate.who or 'nobody'} ({gate.subject}){reason}"


# Incompatible inputs.


def incompatible_inputs(release: str, why: str) -> str:
    """Say that a daemon cannot run an Instance, because the inputs do not fit its handler.

    ``release`` is the release of the daemon, or ""; ``why`` says why the inputs are incompatible.
    """
    who = f"release {release} does" if release else "this daemon does"
    return f"{who} not take its inputs: {why}"


def incompatible_too_long(last: str, since: datetime) -> str:
    """Say that an Instance became FAILED because no daemon accepted its inputs for too long.

    ``last`` is the message of the last deferral; ``since`` is the time of the first deferral.
    """
    return f"{last}. Every daemon that tried since {text.utc_text(since)} refused the inputs"


# Hooks and tailers.


def hook_enqueued(on: str, type: str, uuid: object) -> str:
    return f"{on}: {type} was enqueued as {uuid}"


def hook_unknown(on: str, type: str) -> str:
    return f"{on}: nothing was enqueued, because no Type {type!r} is registered"


def cursor_set(shard: str, before: str | None, after: str | None) -> str:
    return f"the cursor of shard {shard!r} was set: from {before or 'none'} to {after or 'none'}"


def unreadable_source(what: str) -> str:
    """Say what a tailer cannot read in its source.

    ``what`` has one line for each note of the last read; it is empty if there is no note.
    """
    return "; ".join(what.splitlines()) or "everything in the source can be read again"


# Faults that a scan found, and its repairs.


def repaired(what: str, done: str) -> str:
    return f"{what}: {done}"


def ended_with_task() -> str:
    return "it had ended, but still had a Task"


def task_not_held(state: str) -> str:
    return f"it was {state}, but no daemon held its Task"


def task_held(state: str) -> str:
    return f"it was {state}, but a daemon held its Task"


def attempts_differ(own: int, of_task: int) -> str:
    return f"the Instance was at attempt {own}, but its Task at attempt {of_task}"


def no_task(state: str = "") -> str:
    return f"it was {state}, but had no Task" if state else "it had no Task"


def orphan_removed(key: int) -> str:
    return f"a Task without an Instance was removed: key {key}"


def task_removed() -> str:
    return "ATP deleted this Task"


def task_freed() -> str:
    return "its Task waits again"


def attempt_expired() -> str:
    return "its attempt was expired"


def task_created() -> str:
    return "it was given a Task"


def attempt_aligned() -> str:
    return "the Instance and its Task now both have the higher attempt number"


def tasks_taken_later() -> str:
    return _TAKEN_LATER


def daemon_row_missing() -> str:
    return f"its row was deleted: {_TAKEN_LATER}"


def unclaimed() -> str:
    return "due for long and not claimed, although an idle daemon serves its Type"


# Gates and limits.


def gate_set(
    mode: str, *, until: datetime | None = None, reason: str = "", was: Gate | None = None
) -> str:
    """Say that an operator set a gate. ``was`` is the shut gate that it replaces, or None."""
    until = f", until {text.utc_text(until)}" if until else ""
    reason = f": {reason}" if reason else ""
    before = f" (was: {text.describe_gate(was, text.utc_text)})" if was is not None else ""
    return f"gate: {mode}{until}{reason}{before}"


def limits_set(limits: Mapping[str, Any]) -> str:
    return f"limits: {_describe_limits(limits)}"


def limits_left_to_code(limits: Mapping[str, Any], *, is_known: bool) -> str:
    """Say that an operator removed limits, so that the limits that the code declares apply.

    ``is_known`` is True if ``limits`` are those that the code declares. Otherwise they are the old
    limits, which stay until the next registration.
    """
    until = "" if is_known else ", unchanged until the next registration"
    return f"limits left to the code{until}: {_describe_limits(limits)}"


def limits_declared(declared: Mapping[str, Any]) -> str:
    limits = ", ".join(f"{name}: {value}" for name, value in declared.items()) or "none"
    return f"limits declared by the code: {limits}"


def _describe_limits(limits: Mapping[str, Any]) -> str:
    parts = [f"max_running: {limits['max_running']}"] if limits["max_running"] is not None else []
    each = limits["max_running_per_collection"]
    parts += [f"max_running_per_collection: {each}"] if each is not None else []
    parts += [f"rate: {limits['rate']}, burst: {limits['burst']}"] if limits["rate"] else []
    parts += [f"weight: {limits['weight']:g}"] if limits["weight"] != 1 else []
    parts += [f"max_waiting: {limits['max_waiting']}"] if limits["max_waiting"] is not None else []
    parts += [f"max_wait: {limits['max_wait']}"] if limits["max_wait"] is not None else []
    return "; ".join(parts) or "none"


def queue_full(count: int, waiting: int) -> str:
    """Say that a process refused or delayed enqueues because too many Instances waited.

    ``count`` is the number of enqueues, and ``waiting`` the number of Instances that waited.
    """
    return f"full: {count} enqueues refused or delayed, {waiting} waiting"


# Types.


def type_registered() -> str:
    return "registered"


def parameters_changed(changes: Mapping[str, tuple[object, object]]) -> str:
    """Say which parameters changed; ``changes`` maps each name to its old and its new value."""
    words = ", ".join(f"{name}: {was} → {value}" for name, (was, value) in changes.items())
    return f"changed: {words}"


def type_unregistered() -> str:
    return "unregistered"


def instances_removed(uuids: Sequence[str]) -> str:
    named = ", ".join(uuids[:MAX_INSTANCES_NAMED]) + (
        ", …" if len(uuids) > MAX_INSTANCES_NAMED else ""
    )
    return f"Instances removed: {len(uuids)} ({named})"


# Daemons.


def daemon_started() -> str:
    return "started"


def daemon_rejoined() -> str:
    return "joined again"


def daemon_left(uuid: UUID) -> str:
    return f"stopped ({uuid})"


def daemon_lost_tasks(uuid: UUID, count: int) -> str:
    return f"lost, as daemon {uuid}; {_describe_taken(count)}"


def tasks_taken(count: int) -> str:
    return _describe_taken(count)


def _describe_taken(count: int) -> str:
    return f"{count} of its Tasks {'was' if count == 1 else 'were'} taken away"


def daemon_commanded(order: DaemonCommand) -> str:
    return f"told to {order.label}"


# Attempts in a test of a project.


def lost_in_test() -> str:
    return "a test marked this attempt as lost"


def skipped_in_test() -> str:
    return "this attempt was skipped: a test began with a later one"


# Schedules.


def schedule_declared(*, is_new: bool, is_set: bool) -> str:
    """Say that code declared a schedule.

    ``is_set`` is True if the schedule keeps the values that an operator has set.
    """
    words = "declared" if is_new else "declared again"
    return f"{words}; the values set by an operator stay" if is_set else words


def schedule_changed(changes: Mapping[str, tuple[object, object]], *, is_new: bool) -> str:
    """Say that a schedule was created, or which of its parameters changed.

    ``changes`` maps each name to its old and its new value.
    """
    if is_new:
        return "created"
    return parameters_changed(changes) if changes else "set again, with the same values"


def schedule_left_to_code() -> str:
    return "left to the code: its declaration applies again"


def schedule_retired() -> str:
    return "retired: no code declares it any more"


def schedule_paused(reason: str, until: datetime | None) -> str:
    end = f" until {text.utc_text(until)}" if until else ""
    return f"paused{end}{f': {reason}' if reason else ''}"


def schedule_resumed() -> str:
    return "resumed"


def schedule_rules_changed(before: datetime, after: datetime) -> str:
    """Say that new rules for a time zone move the next slot of a schedule.

    ``before`` is the time of the slot by the old rules, and ``after`` its time by the new rules.
    """
    moved = f"{text.utc_text(before)} to {text.utc_text(after)}"
    return f"the rules of its time zone have changed: the next slot moves from {moved}"


def schedule_run(uuid: UUID) -> str:
    return f"run now as Instance {uuid}"


def schedule_backfilled(count: int) -> str:
    return f"backfilled: {count} slot{'' if count == 1 else 's'}"


def schedule_deleted() -> str:
    return "deleted"


# Slots.


def slot_paused(by: str, reason: str) -> str:
    who = f" by {by}" if by else ""
    return f"paused{who}{f': {reason}' if reason else ''}"


def slots_missed(count: int, late: timedelta, *, is_more: bool) -> str:
    """Say that slots were not planned in time.

    ``late`` is the time from the first slot until a daemon found it.
    """
    more = "more than " if is_more else ""
    slots = f"{more}{count} slot{'' if count == 1 else 's'}"
    return f"{slots} not planned in time, the first {late.total_seconds():.0f} s late"


def slots_unknown(reason: str) -> str:
    """Say that a slot was not planned in time, and that ATP cannot compute the slots after it.

    ``reason`` says why it cannot compute them.
    """
    return f"not planned in time; the slots after it are unknown: {reason}"


def slot_skipped(uuid: UUID) -> str:
    """Say that a slot was skipped because the Instance with this uuid had not ended."""
    return f"{uuid} has not ended"


def slot_passed_over(overlap: str) -> str:
    """Say that a slot was skipped because a later slot was due too.

    ``overlap`` is the policy of the schedule, which lets only one of the due slots run.
    """
    return f"a later slot was due too, and runs instead: overlap is {overlap}"


def slot_full(waiting: int) -> str:
    return f"{waiting} Instances of the schedule are waiting, which is the most allowed"


def slot_queue_full(fill: Fill) -> str:
    return f"{text.describe_target(fill.type, fill.collection)} was full: {fill.waiting} waited"


def slot_in_line(behind: int, cancelled: int) -> str:
    """Say that a slot waits for earlier Instances, or that it cancelled them.

    ``behind`` is the number of Instances that it waits for; ``cancelled`` is the number that it
    cancelled.
    """
    if cancelled:
        return f"earlier Instances cancelled: {cancelled}"
    return f"waits behind {behind}" if behind else ""


def slot_backfilled(more: str = "") -> str:
    return f"backfilled, {more}" if more else "backfilled"
