"""The commands of operators: to a running attempt (cancel, pause, resume, release) and to a daemon
(quiet, resume, stop), with the modes of a daemon.
"""

from dataclasses import dataclass

from django.db.models import TextChoices

# Commands to the holder of a claimed Task, as its row stores them. A cancel stays there whatever
# an operator commands afterwards.
RELEASE = "release"
CANCEL = "cancel"
# Each of these two replaces the other one.
PAUSE, RESUME = "pause", "resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptCommand:
    """A command on a claimed Task, which its holder has to carry out.

    ``instance`` is the key of the Instance. Only a cancel has an actor, ``who``, and an ``age`` in
    seconds.
    """

    instance: int
    attempt: int
    request: str
    who: str = ""
    age: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The outcome of a cancel, as keys of Instances.

    ``failed``: they were waiting and are FAILED now. ``asked``: their holders have the command now.
    ``before``: their holders had it already. Instances with other keys are not live.
    """

    failed: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


class Mode(TextChoices):
    """The mode of a daemon, which the daemon itself writes to its row."""

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
    """Return the mode to which the request in its row brings a daemon; STOPPING never ends."""
    if Mode.STOPPING in (mode, requested_mode(request)):
        return Mode.STOPPING
    return requested_mode(request)


def requested_mode(request: str) -> Mode:
    """Return the mode that a request in a daemon's row demands."""
    commands = (command for command, text in REQUESTS.items() if text == request)
    return MODE_CHANGES[next(commands, DaemonCommand.RESUME)][1]


def allowed_commands(aim: Mode) -> list[DaemonCommand]:
    """Return the commands that would change the mode of a daemon on its way to the mode ``aim``."""
    return [command for command, (sources, _) in MODE_CHANGES.items() if aim in sources]
