"""What was found of each participant in all runs, and why some have no figure."""

import statistics
from collections import defaultdict

from .figures import UNITS


class Findings:
    """The values by participant; the first of these is ATP, which is compared with the others."""

    def __init__(self, participants, figures):
        self.participants = participants
        self._figures = figures
        self._values = {participant.key: defaultdict(list) for participant in participants}
        self._failed = {participant.key: {} for participant in participants}
        self._servers = {}

    def serve(self, participant, server):
        """Keep what a participant has its store on."""
        self._servers[participant.key] = server

    def add(self, participant, found):
        """Keep the values of one run."""
        for value, number in found.items():
            self._values[participant.key][value].append(number)

    def fail(self, participant, reason, figure=None):
        """Keep why a participant has no figure; or none at all."""
        for name in [figure] if figure else self.able(participant):
            self._failed[participant.key][name] = reason

    def wants(self, participant, figure):
        """Whether a participant has such a figure, and has not failed to give it."""
        able = figure in self.able(participant)
        return able and figure not in self._failed[participant.key]

    def median(self, participant, value):
        """Return the median of the runs; None if there is none."""
        numbers = self._values[participant.key].get(value)
        return statistics.median(numbers) if numbers else None

    def ratio(self, participant, value):
        """Return ATP's value divided by a peer's, the median of the runs; None if there is none."""
        own = self.participants[0]
        return None if participant is own else self.quotient(own, participant, value)

    def quotient(self, participant, rival, value):
        """Return the value of one divided by that of another; None if there is none.

        Both are of the same run: what slows the machine down for a while slows both.
        """
        own, others = (self._values[each.key].get(value, ()) for each in (participant, rival))
        # Who has failed once is not asked again, so that what is there begins with the first run.
        ratios = [mine / other for mine, other in zip(own, others, strict=False) if other]
        return statistics.median(ratios) if ratios else None

    def failures(self, participant):
        """Return the reasons by figure."""
        return self._failed[participant.key]

    def reasons(self, participant):
        """Return the figures by reason."""
        found = defaultdict(list)
        for figure, reason in self.failures(participant).items():
            found[reason].append(figure)
        return found

    def give(self, report):
        """Let a report have all medians and ratios, and what the participants are."""
        for participant in self.participants:
            for value, unit in UNITS.items():
                if self.median(participant, value) is None:
                    continue
                name = f"{participant.name}: {value}"
                report.add(name, self._values[participant.key][value], unit=unit)
                if (ratio := self.ratio(participant, value)) is not None:
                    report.ratio[name] = ratio
            self._judge(participant, report)
            self._judge_rivals(participant, report)
        own = self.participants[0]
        for figure, reason in self.failures(own).items():
            report.exceeded.append(f"{own.name} has failed at {figure}: {reason}")
        report.more["peers"] = {
            participant.name: {
                "versions": participant.versions,
                "store": self._servers.get(participant.key) or participant.store,
                "settings": participant.settings,
                "failed": self.failures(participant),
            }
            for participant in self.participants
        }

    def able(self, participant):
        """Return the figures that are asked of a participant."""
        return [figure for figure in self._figures if figure in participant.figures]

    def _judge(self, participant, report):
        """Let a report say where ATP is not as many times a participant as it has to be."""
        for value, least in participant.least.items():
            ratio = self.ratio(participant, value)
            if ratio is not None and ratio < least:
                report.exceeded.append(
                    f"{self.participants[0].name} is {ratio:.2f} times {participant.name}"
                    f" by {value}, not {least}"
                )

    def _judge_rivals(self, participant, report):
        """Compare a participant with those beside it that it has to be as quick as."""
        for rival in self.participants:
            for value, least in participant.rivals.get(rival.key, {}).items():
                ratio = self.quotient(participant, rival, value)
                if ratio is None:
                    continue
                report.compare(rival.name, ratio, figure=f"{participant.name}: {value}")
                if ratio < least:
                    report.exceeded.append(
                        f"{participant.name} is {ratio:.2f} times {rival.name} by {value},"
                        f" not {least}"
                    )
