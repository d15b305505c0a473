"""The rules that protect a downstream: its rate limit and its circuit breaker."""

from dataclasses import replace

import pytest

from atp.downstreams import protection
from atp.downstreams.protection import Protection, Report, State, Verdict, Window

NOW = 1_000_000.0
FINE = Protection()


def report(ok=0, refused=0, failed=0, *, row=None, age=0.0, **more):
    """Return a Report of calls; without ``row``, all failures come last."""
    row = failed if row is None else row
    more = {"had_ok": bool(ok or refused)} | more
    return Report(counts=((age, ok, refused, failed),), row=row, **more)


def throttled(rate, **more):
    """Return a downstream that was throttled a minute ago and whose rate is fully used."""
    window = Window(since=NOW - 1, used=int(rate) + 1)
    more = {"adjusted_at": NOW - 60, "decreased_at": NOW - 60, "window": window} | more
    return Protection(state=State.THROTTLED, per_second=rate, refilled=NOW, **more)


class TestRate:
    def test_a_refusal_lowers_the_rate_below_that_of_the_successful_calls(self):
        """Successful calls of other daemons count too."""
        found = protection.apply_report(FINE, report(ok=10, refused=1, age=1.0), NOW)
        assert found.state is State.THROTTLED
        assert found.per_second == pytest.approx(7.0)
        found = protection.apply_report(found, report(ok=10, age=1.1), NOW + 0.1)
        assert found.per_second > 12

    def test_refusals_seen_by_many_daemons_lower_the_rate_once_until_the_fence(self):
        found = was = throttled(20.0, last_max=30.0)
        assert protection.apply_report(was, report(ok=20, refused=1), NOW).last_max == 20.0
        for number in range(6):
            found = protection.apply_report(found, report(ok=2, refused=1), NOW + number / 10)
        assert found.per_second == protection.BACK * 2
        again = protection.apply_report(found, report(ok=1, refused=1), NOW + protection.FENCE)
        assert again.per_second < found.per_second
        was = throttled(10.0, floor=8.0)
        assert protection.apply_report(was, report(refused=1), NOW).per_second == 8.0

    def test_the_rate_rises_only_if_it_was_used(self):
        for rate, wanted in (
            (10.0, 11.0),  # below
            (17.5, 18.0),  # not beyond
            (20.0, 20.2),  # near
            (30.0, 33.0),  # above
        ):
            found = protection.apply_report(throttled(rate, last_max=20.0), report(ok=5), NOW)
            assert found.per_second == pytest.approx(wanted)
        was = throttled(10.0, last_max=20.0, window=Window(since=NOW - 1, used=7))
        assert protection.apply_report(was, report(ok=7), NOW).per_second == 10.0

        # After a while, an unused rate is dropped.
        idle = {"adjusted_at": NOW - 601, "window": Window(since=NOW - 1, used=1)}
        was = throttled(10.0, **idle | {"decreased_at": NOW - 601})
        assert protection.apply_report(was, report(ok=1), NOW).state is State.CLOSED

    def test_a_ceiling_also_throttles_a_healthy_downstream(self):
        found = protection.apply_limits(replace(FINE, ceiling=5.0), NOW)
        assert (found.state, found.per_second) == (State.THROTTLED, 5.0)
        risen = replace(found, window=Window(since=NOW, used=9))
        assert protection.apply_report(risen, report(ok=5), NOW + 1).per_second == 5.0
        assert protection.close_breaker(found, NOW).per_second == 5.0
        for ceiling in (2.0, 500.0):
            changed = protection.apply_limits(replace(found, ceiling=ceiling), NOW)
            assert (changed.state, changed.per_second) == (State.THROTTLED, ceiling)
        # Without a ceiling the rate stays only after refusals.
        assert protection.apply_limits(replace(found, ceiling=None), NOW) == FINE
        was = throttled(4.0, ceiling=5.0, decreased_at=NOW - 5)
        found = protection.apply_limits(replace(was, ceiling=None), NOW)
        assert (found.state, found.per_second) == (State.THROTTLED, 4.0)

    def test_tokens_refill_over_time_up_to_a_limit(self):
        was = protection.spend_tokens(throttled(20.0, tokens=1.0), 1, NOW)
        assert was.available(NOW) == 0
        assert was.available(NOW + 0.05) == pytest.approx(1.0)
        assert was.available(NOW + 60) < 6


def test_a_shorter_retry_after_does_not_replace_a_longer_one():
    found = protection.apply_report(FINE, report(ok=1, refused=1, after=30.0), NOW)
    assert found.opens_in(NOW) == 30.0
    found = protection.apply_report(found, report(refused=1, after=2.0), NOW + 1)
    assert found.opens_in(NOW) == 30.0


class TestBreaker:
    def test_ten_consecutive_failures_across_daemons_open_the_breaker(self):
        found = FINE
        for _ in range(3):
            found = protection.apply_report(found, report(failed=3), NOW)
            assert found.state is State.CLOSED
        found = protection.apply_report(found, report(failed=1), NOW)
        assert found.state is State.OPEN
        # It begins a new window, and ignores earlier calls.
        assert (found.window.total, found.window.row) == (0, 0)
        assert protection.apply_report(found, report(ok=5, failed=15), NOW) == found
        # A success resets the count.
        found = protection.apply_report(FINE, report(failed=9), NOW)
        found = protection.apply_report(found, report(ok=20, failed=1), NOW)
        assert found.state is State.CLOSED
        assert found.window.row == 1

    def test_the_breaker_opens_if_half_of_the_calls_in_the_window_failed(self):
        for ok, state in ((10, State.OPEN), (11, State.CLOSED)):
            assert (
                protection.apply_report(FINE, report(ok=ok, failed=10, row=2), NOW).state is state
            )

    def test_the_breaker_stays_open_longer_each_time_up_to_a_limit(self):
        """The length varies at random so that daemons do not return all at once."""
        found, lengths = FINE, []
        for _ in range(12):
            found = protection.open_breaker(replace(found, not_before=None), NOW)
            lengths.append(found.opens_in(NOW))
        assert lengths[:5] == [1, 2, 4, 8, 16]
        assert lengths[-1] == protection.LONGEST
        for spread in (-1.0, 1.0):
            found = protection.open_breaker(FINE, NOW, spread=spread)
            assert found.opens_in(NOW) == pytest.approx(1 + 0.2 * spread)


class TestProbe:
    was = protection.start_probe(protection.open_breaker(FINE, NOW), 7, NOW + 1)

    def probed(self, verdict, instance=7, **more):
        given = Report(probe=(instance, verdict), **more)
        return protection.apply_report(self.was, given, NOW + 2)

    def test_after_a_successful_probe_the_rate_doubles_up_to_a_limit(self):
        found, rates = replace(self.probed(Verdict.OK), last_max=20.0), []
        for second in range(3, 9):
            found = replace(found, window=replace(found.window, used=99))
            found = protection.apply_report(found, report(ok=1), NOW + second)
            rates.append(found.per_second)
        assert rates[:4] == [2, 4, 8, 14]
        assert found.trips == 0

    def test_the_next_state_of_the_breaker_depends_on_the_verdict_of_the_probe(self):
        """A successful probe allows one call a second; after none there is another probe."""
        found = self.probed(Verdict.OK)
        assert (found.state, found.per_second) == (State.THROTTLED, 1.0)
        found = self.probed(Verdict.FAILED)
        assert (found.state, found.trips) == (State.OPEN, 2)
        found = self.probed(Verdict.REFUSED, after=9.0)
        assert found.state is State.THROTTLED
        assert found.opens_in(NOW + 2) == 9.0
        found = self.probed(Verdict.UNKNOWN)
        assert found.state is State.OPEN
        assert found.opens_in(NOW + 2) == 0
        # That of another Instance says nothing.
        assert self.probed(Verdict.OK, instance=8) == self.was


def test_delayed_attempts_are_spread_out_after_the_delay():
    due = [protection.delay_until_call(None, 10.0, chance / 10) for chance in range(11)]
    assert min(due) == 10.0
    assert max(due) == 12.0


def test_a_window_is_unchanged_after_it_was_stored_and_read():
    found = protection.apply_report(throttled(5.0), report(ok=3, refused=1), NOW).window
    assert Window.read(found.written()) == found
