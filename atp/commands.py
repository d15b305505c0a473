"""The commands that operators send to running attempts and to daemons; the modes of a daemon.

An operator can cancel, pause, resume or release an attempt; a daemon can be made quiet, resumed or
stopped.
"""

from dataclasses import dataclass

from django.db.models import TextChoices

# Commands to the holder of a claimed Task, as its row stores them. A cancel stays there whatever
# an operator commands afterwards.
RELEASE = "release"
CANCEL = "cancel"
# Each of these two replaces the other one.
PAUSE, RESUME = "pause", "resume"
# The command to take the stack of the attempt replaces no other command, and none replaces it but a
# cancel. It stands behind the other one in the row: "pause+stack", or "+stack" alone.
STACK = "stack"
STACK_MARK = f"+{STACK}"


def split_request(request: str) -> tuple[str, bool]:
    """Return the command in the request of a Task's row, and whether the stack is wanted, too."""
    command = request.removesuffix(STACK_MARK)
    return command, command != request


def join_request(command: str, *, with_stack: bool) -> str:
    """Return the request for a Task's row, from what :func:`split_request` returns."""
    return f"{command}{STACK_MARK}" if with_stack else command


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptCommand:
    """A command on a claimed Task, which the daemon that holds the Task has to carry out.

    ``instance`` is the primary key of the Instance, ``request`` the command, such as "cancel". For
    a cancel, ``who`` is the operator, and ``age`` the time in seconds since the operator sent it.
    """

    instance: int
    attempt: int
    request: str
    who: str = ""
    age: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The result of a cancel, as three groups of primary keys of Instances.

    The Instances in ``failed`` were waiting, and are FAILED now. The daemons that hold those in
    ``asked`` have now been sent the command. For those in ``before``, an earlier cancel had already
    sent the command. Instances in none of the groups are not live.
    """

    failed: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


class Mode(TextChoices):
    """The mode of a daemon. The daemon itself writes its mode to its row in the database."""

    RUNNING = "running", "claims what it serves"
    QUIET = "quiet", "claims nothing more, and goes on with what it runs"
    STOPPING = "stopping", "claims nothing more, and ends"


class DaemonCommand(TextChoices):
    """A command from an operator to a daemon."""

    QUIET = "quiet", "go quiet"
    RESUME = "resume", "resume"
    STOP = "stop", "stop"


EXPLANATIONS = {
    DaemonCommand.QUIET: "Stop claiming. Hand back Tasks that have not started; go on with those "
    "that run.",
    DaemonCommand.RESUME: "Start claiming again.",
    DaemonCommand.STOP: "Stop as after SIGTERM: running attempts get the daemon's grace to end.",
}

# The request that each command leaves in the daemon's row. It stays there while the daemon
# obeys it, so the daemon's next identity obeys it too.
REQUESTS = {DaemonCommand.QUIET: "quiet", DaemonCommand.RESUME: "", DaemonCommand.STOP: "stop"}

# The modes in which each command makes a difference, and the mode to which it leads.
MODE_CHANGES = {
    DaemonCommand.QUIET: ({Mode.RUNNING}, Mode.QUIET),
    DaemonCommand.RESUME: ({Mode.QUIET}, Mode.RUNNING),
    DaemonCommand.STOP: ({Mode.RUNNING, Mode.QUIET}, Mode.STOPPING),
}


def mode_after(mode: str, request: str) -> Mode:
    """Return the mode that a daemon enters when it obeys ``request``.

    A daemon that is STOPPING never leaves that mode.
    """
    if Mode.STOPPING in (mode, requested_mode(request)):
        return Mode.STOPPING
    return requested_mode(request)


def requested_mode(request: str) -> Mode:
    """Return the mode that ``request``, the value in a daemon's row, commands."""
    commands = (command for command, text in REQUESTS.items() if text == request)
    return MODE_CHANGES[next(commands, DaemonCommand.RESUME)][1]


def allowed_commands(aim: Mode) -> list[DaemonCommand]:
    """Return the commands that would have an effect on a daemon.

    ``aim`` is the mode that the daemon has, or is about to enter.
    """
    return [command for command, (sources, _) in MODE_CHANGES.items() if aim in sources]
