"""The schedule of faults, which follows from the seed."""

import random
from dataclasses import dataclass

from .server import HOWS


@dataclass(frozen=True, kw_only=True)
class Action:
    """A fault that happens ``at`` this many seconds after the start.

    ``daemon`` and ``member``, from 0 to 1, choose one of the daemons and one of its workers at
    that time. ``span`` is the duration in seconds, and ``how`` the variant.
    """

    at: float
    name: str
    daemon: float = 0.0
    member: float = 0.0
    span: float = 0.0
    how: str = ""

    def __str__(self):
        span = f" for {self.span:.2f} s" if self.span else ""
        how = f", {self.how}" if self.how else ""
        return f"{self.at:8.2f} {self.name}{span}{how} ({self.daemon:.3f}, {self.member:.3f})"


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """How often a fault happens per minute, and for how long."""

    often: float
    spans: tuple = ((0.0, 0.0),)
    hows: tuple = ("",)


# A supervisor must not be stopped for as long as there is between its kill limit and
# the end of its lease, a dispatcher may be stopped for longer than that lease. Of the
# database's outages one in five is longer than a daemon may go on without renewing.
DAEMONS = {
    "kill_worker": Pressure(often=4),
    "kill_dispatcher": Pressure(often=1.5),
    "kill_supervisor": Pressure(often=1, spans=((0.0, 3.0),)),
    "kill_daemon": Pressure(often=0.7, spans=((0.0, 3.0),)),
    "stop_worker": Pressure(often=3, spans=((0.2, 4.0),)),
    "stop_dispatcher": Pressure(often=2, spans=((0.2, 3.0), (3.0, 8.0), (9.0, 14.0))),
    "stop_supervisor": Pressure(often=1.2, spans=((0.2, 1.5),)),
    "stop_daemon": Pressure(often=0.6, spans=((0.2, 1.5),)),
    # The log handlers of the project: nobody may lose an attempt by them.
    "break_logging": Pressure(often=2, spans=((0.2, 3.0), (7.0, 14.0)), hows=("raise", "block")),
    "join": Pressure(often=1),
    "leave": Pressure(often=1, hows=("once", "once", "twice")),
}
SERVER = {
    "restart_database": Pressure(
        often=1.5,
        spans=((0.0, 0.5), (0.0, 2.0), (0.0, 2.0), (1.0, 3.0), (6.0, 9.0)),
        hows=("SIGKILL", "immediate", "fast"),
    ),
    "terminate_backend": Pressure(often=5),
    "cut_off": Pressure(often=1.5, spans=((0.2, 3.0), (5.0, 8.0), (9.0, 14.0))),
    # Somebody's open transaction, often for longer than a daemon may go on without renewing.
    "open_transaction": Pressure(often=4, spans=((0.2, 3.0), (7.0, 14.0)), hows=HOWS),
}


def drawn(seed, minutes, *, has_server):
    """Return the Actions that follow from the seed, in order.

    Each kind is spread over the whole time, with one Action in each equal part.
    """
    source = random.Random(f"schedule {seed}")
    pressures = DAEMONS | (SERVER if has_server else {})
    actions = []
    for name, pressure in pressures.items():
        count = max(1, round(pressure.often * minutes))
        slot = minutes * 60 / count
        for number in range(count):
            actions.append(
                Action(
                    at=round((number + source.random()) * slot, 3),
                    name=name,
                    daemon=round(source.random(), 6),
                    member=round(source.random(), 6),
                    span=round(source.uniform(*source.choice(pressure.spans)), 3),
                    how=source.choice(pressure.hows),
                )
            )
    return in_order(actions)


def short(*, has_server):
    """Return a fixed list with each kind of Action, for a run of a few seconds."""
    act = Action
    actions = [
        act(at=0.5, name="stop_worker", span=1.5, daemon=0.1, member=0.1),
        act(at=1.0, name="kill_worker", daemon=0.6, member=0.6),
        act(at=1.5, name="stop_dispatcher", span=1.0, daemon=0.1),
        act(at=0.2, name="break_logging", span=2.0, how="raise", daemon=0.6),
        act(at=2.2, name="break_logging", span=7.0, how="block", daemon=0.1),
        act(at=2.5, name="kill_dispatcher", daemon=0.6),
        act(at=3.0, name="stop_supervisor", span=1.0, daemon=0.1),
        act(at=4.0, name="kill_supervisor", span=0.2, daemon=0.1),
        act(at=5.0, name="kill_worker", daemon=0.6, member=0.1),
        act(at=6.0, name="kill_daemon", span=0.2, daemon=0.6),
        act(at=6.5, name="join"),
        act(at=8.0, name="stop_daemon", span=0.8, daemon=0.1),
        act(at=8.5, name="leave", how="once", daemon=0.6),
    ]
    if has_server:
        actions += [
            act(at=2.0, name="terminate_backend", member=0.2),
            act(at=3.5, name="restart_database", span=0.3, how="SIGKILL"),
            act(at=5.5, name="terminate_backend", member=0.7),
            act(at=9.0, name="cut_off", span=1.0, daemon=0.1),
            act(at=1.2, name="open_transaction", span=2.0, how="task", member=0.5),
            act(at=4.5, name="open_transaction", span=2.0, how="daemon", member=0.1),
            act(at=7.0, name="restart_database", span=0.2, how="immediate"),
        ]
    return in_order(actions)


def in_order(actions):
    return sorted(actions, key=lambda action: (action.at, action.name))
