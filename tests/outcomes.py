"""The outcome of a run, and its last lines: what failed, what is unsteady, what took long.

A test that failed is run once more at the end, alone. If it passes then, it is *unsteady*: it is
named with its first failure, and does not fail the run, unless there are more than a few such.
An unsteady test is a fault of the test or of the product that is to be traced.
"""

import textwrap
from collections import Counter
from dataclasses import dataclass, field, replace

from .results import Result

# More unsteady tests than that fail a run.
MOST_UNSTEADY = 5
# Where more failed, the run has failed whatever a second look says, and there is none.
MOST_LOOKED_AT = 20
# So many failures are printed with their text; all are printed with so much of it.
MOST_TEXTS = 5
WHY = 160
SLOWEST = 15
SLOW = 1.0


@dataclass
class Outcome:
    """The results of a leg's tests, and what went wrong beside them."""

    results: list[Result] = field(default_factory=list)
    complaint: str = ""
    seconds: float = 0.0
    unsteady: list[Result] = field(default_factory=list)

    def __add__(self, other):
        """Return the outcome of both, which shared their tests."""
        return Outcome(
            self.results + other.results,
            ", ".join(filter(None, [self.complaint, other.complaint])),
            max(self.seconds, other.seconds),
            self.unsteady + other.unsteady,
        )

    @property
    def failures(self):
        return [result for result in self.results if result.outcome == "failed"]

    def looked_again(self, second):
        """Return the outcome after a second look with the Results ``second``."""
        passed = {result.id for result in second if result.outcome == "passed"}
        passed &= {result.id for result in self.failures}
        results = [
            replace(each, outcome="passed") if each.id in passed else each for each in self.results
        ]
        unsteady = [each for each in self.failures if each.id in passed]
        return replace(self, results=results, unsteady=unsteady)

    def counts(self):
        """Return how many passed, failed and were skipped; a complaint counts as a failure."""
        found = Counter(result.outcome for result in self.results)
        failed = found["failed"] or bool(self.complaint)
        return found["passed"], int(failed), found["skipped"]

    def __str__(self):
        told = counted(*self.counts())
        if self.unsteady:
            told += f", {len(self.unsteady)} unsteady"
        return told + (f" ({self.complaint})" if self.complaint else "")


def counted(passed, failed, skipped):
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def of_leg(results, status, *, seconds=0.0):
    """Return the Outcome of pytest's exit status. Status 5 says that nothing was selected."""
    outcome = Outcome(results, seconds=seconds)
    if status not in (0, 1, 5) or (status == 1 and not outcome.failures):
        outcome.complaint = f"pytest ended with status {status}"
    return outcome


def report(titled):
    """Print the end of a run, of pairs of a title and an Outcome; return the exit status.

    The counts stand last, as a log is often cut at its end, and before them all failures by name.
    """
    print()
    _print_slowest(titled)
    for title, outcome in titled:
        for result in outcome.failures[:MOST_TEXTS]:
            print(f"{title}: FAILED {result.id}\n{textwrap.indent(result.why, '    ')}\n")
    for title, outcome in titled:
        for word, results in (("FAILED", outcome.failures), ("UNSTEADY", outcome.unsteady)):
            for result in results:
                why = (result.why.splitlines() or [""])[0].strip()
                print(f"{title}: {word} {result.id}: {why[:WHY]}")
    for title, outcome in titled:
        print(f"{title}: {outcome}, {outcome.seconds:.0f} s")
    counts = [outcome.counts() for _, outcome in titled]
    passed, failed, skipped = (sum(each) for each in zip(*counts, strict=True))
    unsteady = sum(len(outcome.unsteady) for _, outcome in titled)
    if unsteady > MOST_UNSTEADY:
        print(f"{unsteady} are unsteady: more than {MOST_UNSTEADY} fail the run")
        passed, failed = passed - unsteady, failed + unsteady
    if not passed and not failed:
        print("no test ran")
    print(counted(passed, failed, skipped))
    return 1 if failed or not passed else 0


def _print_slowest(titled):
    results = [(result, title) for title, outcome in titled for result in outcome.results]
    slow = [pair for pair in results if pair[0].seconds > SLOW]
    if slow:
        slow.sort(key=lambda pair: pair[0].seconds, reverse=True)
        print("The slowest tests, with their fixtures; in parentheses the seconds of processor:")
        for result, title in slow[:SLOWEST]:
            print(f"{result.seconds:6.1f} s ({result.processor:5.1f})  {title}: {result.id}")
        print()
