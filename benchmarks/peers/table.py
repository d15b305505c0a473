"""The tables that a run ends with: a row for each participant, with ATP's ratio to it."""

from ..core.report import told
from .catalogue import SAVED
from .figures import CLIENTS, FIGURE_OF, SAVED_KEPT

# The columns of each table: a heading, the value, and whether ATP is compared by it.
_TABLES = {
    "tasks a second (× is ATP divided by the peer), and rows written for a task": (
        ("drain", "drain", True),
        ("rows", "drain, rows", False),
        ("enqueue", "enqueue", True),
        (f"by {CLIENTS}", f"enqueue, {CLIENTS} clients", True),
        ("bulk", "bulk", True),
        ("rows", "bulk, rows", False),
    ),
    "milliseconds from the call, from its return, until the handler; memory (PSS)": (
        ("p50", "latency, p50 from the call", True),
        ("p99", "latency, p99 from the call", True),
        ("p50", "latency, p50 from its return", True),
        ("p99", "latency, p99 from its return", True),
        ("MB", "memory", True),
    ),
    "tasks a second that save a row by the ORM, by Django's defaults, with kept connections": (
        ("default", SAVED, True),
        ("kept", SAVED_KEPT, True),
    ),
    "one task that waits for many: seconds to submit all, tasks a second until it is entered": (
        ("s", "fan, submitted", True),
        ("/s", "fan", True),
    ),
    "naps of which all workers were killed: never ended, begun twice, seconds until the last": (
        ("lost", "kill, lost", False),
        ("twice", "kill, twice", False),
        ("s", "kill, until the last", True),
    ),
}
_NAME, _NUMBER, _RATIO = 24, 8, 6
_NONE = "–"


def print_tables(findings):
    """Print what was found, and below it the reasons why something was not."""
    for title, columns in _TABLES.items():
        figures = {FIGURE_OF[value] for _, value, _ in columns}
        participants = [
            each for each in findings.participants if figures.intersection(findings.able(each))
        ]
        if not participants:
            continue
        headings = [_cells(heading, "×" if compared else None) for heading, _, compared in columns]
        print(f"\n{title}\n{'':<{_NAME}}{''.join(headings)}".rstrip())
        for participant in participants:
            cells = [_found(findings, participant, *column[1:]) for column in columns]
            print(f"{participant.name:<{_NAME}}{''.join(cells)}".rstrip())
    for participant in findings.participants:
        for reason, figures in findings.reasons(participant).items():
            print(f"\n{participant.name} has failed at {', '.join(figures)}: {reason}")


def _found(findings, participant, value, compared):
    number, ratio = findings.median(participant, value), findings.ratio(participant, value)
    if number is None:
        failed = FIGURE_OF[value] in findings.failures(participant)
        return _cells("failed" if failed else _NONE, "" if compared else None)
    return _cells(told(number), _ratio(ratio) if compared else None)


def _ratio(ratio):
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def _cells(number, ratio):
    return f"{number:>{_NUMBER}}" + ("" if ratio is None else f"{ratio:>{_RATIO}}")
