"""Tests of :mod:`atp.conf`."""

from datetime import timedelta

import pytest

from atp import conf
from atp.conf import InvalidSetting
from atp.conf.validation import problems


@pytest.fixture(autouse=True)
def nothing_given(settings):
    """As a project that sets nothing."""
    settings.ATP = {}


def test_defaults_are_the_attributes(settings):
    assert conf.settings.LEASE == 30.0
    assert timedelta(hours=1) == conf.settings.TIMEOUT
    del settings.ATP
    assert conf.settings.LEASE == 30.0
    assert problems() == []


def test_defaults_break_no_rule():
    assert problems() == []


def test_values_that_are_overridden_are_read_again(settings):
    settings.ATP = {"LEASE": 60}
    assert conf.settings.LEASE == 60
    settings.ATP = {"LEASE": 90}
    assert conf.settings.LEASE == 90


def test_the_settings_of_the_tests_break_no_rule(settings):
    from .settings import ATP

    settings.ATP = ATP
    assert problems() == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LEASES", "'LEASE'"),
        ("lease", "'LEASE'"),
        ("POLL_EVRY", "'POLL_EVERY'"),
        ("MAX_RETRY", "'MAX_RETRIES'"),
    ],
)
def test_an_unknown_key_is_told_with_the_closest_known(settings, name, hint):
    """G13: "did you mean"."""
    settings.ATP = {name: 1}
    assert problems() == [f"ATP has an unknown key {name!r}. Did you mean {hint}?"]


def test_an_unknown_key_that_is_like_no_other(settings):
    settings.ATP = {"ZZZZ": 1}
    assert problems() == ["ATP has an unknown key 'ZZZZ'."]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE", "30"),
        ("LEASE", None),
        ("LEASE", True),
        ("LEASE", timedelta(seconds=30)),
        ("LEASE", 0),
        ("LEASE", -1),
        ("LEASE", float("inf")),
        ("LEASE", float("nan")),
        ("MAX_RESTARTS", 1.5),
        ("MAX_RESTARTS", -1),
        ("MAX_RESTARTS", False),
        ("TIMEOUT", "1h"),
        ("TIMEOUT", 0),
        ("BACKOFF", timedelta(seconds=-1)),
        ("ALLOW_PICKLE", 1),
        ("DATABASE", None),
        ("LOG_LEVEL", 20),
        ("BACKOFF", 1e15),
        ("TIMEOUT", timedelta.max),
        ("RETENTION", timedelta(days=999_999)),
        ("RETENTION", 10**400),
        ("MAX_RETRIES", 10**20),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(settings, name, value):
    """G13: told by the check, and raised where it would be used."""
    settings.ATP = {name: value}
    [problem] = problems()
    assert problem.startswith(f"ATP['{name}'] must be")
    with pytest.raises(InvalidSetting, match=name):
        getattr(conf.settings, name)


@pytest.mark.parametrize("token", [b"swordfish", "swordfish\n", "sword fish", "schwertfisch-ü"])
def test_a_token_that_nobody_can_give_is_an_error_and_is_not_told(settings, token):
    settings.ATP = {"METRICS_TOKEN": token}
    [problem] = problems()
    assert problem.startswith("ATP['METRICS_TOKEN'] must be")
    assert "fish" not in problem
    assert "fisch" not in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMEOUT", None),
        ("TIMEOUT", 5),
        ("TIMEOUT", timedelta(minutes=5)),
        ("RETENTION", 0),
        ("RETENTION", timedelta(days=30)),
        ("BACKOFF", 0),
        ("GRACE", 0),
        ("MAX_RETRIES", 0),
        ("ALLOW_PICKLE", True),
        ("POLL_EVERY", 1),
    ],
)
def test_a_value_of_the_right_kind_is_fine(settings, name, value):
    settings.ATP = {name: value}
    assert problems() == []
    assert getattr(conf.settings, name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("MAX_INPUTS_SIZE", 0), ("MAX_INPUTS_SIZE", 1), ("POLL_EVERY", 1e8), ("SWEEP_EVERY", 86401.0)],
)
def test_a_value_with_which_nothing_would_go_on_is_told(settings, name, value):
    """G13."""
    settings.ATP = {name: value}
    [problem] = problems()
    assert problem.startswith(f"ATP['{name}'] is {value}: ")


def test_it_has_to_be_a_dictionary(settings):
    settings.ATP = [("LEASE", 30)]
    assert problems() == ["ATP must be a dictionary, not list."]


def test_every_problem_is_told(settings):
    settings.ATP = {"LEASES": 1, "LEASE": "x", "GRACE": -1}
    assert len(problems()) == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"KILL_AFTER": 29.5}, "KILL_AFTER"),
        ({"KILL_AFTER": 30}, "KILL_AFTER"),
        ({"LEASE": 26}, "KILL_AFTER"),
        ({"RENEW_EVERY": 21}, "RENEW_EVERY"),
        ({"STATEMENT_TIMEOUT": 21}, "STATEMENT_TIMEOUT"),
    ],
)
def test_leases_that_break_killed_before_taken_away_are_refused(settings, given, told):
    """G3: workers are dead before another daemon may take their Tasks."""
    settings.ATP = given
    [problem] = problems()
    assert f"ATP['{told}']" in problem


def test_leases_at_the_limit_are_fine(settings):
    settings.ATP = {"LEASE": 27, "RENEW_EVERY": 20.9}
    assert problems() == []


@pytest.mark.parametrize("value", [0, "lots", "", "512MiBs"])
def test_a_size_that_is_none(settings, value):
    settings.ATP = {"MAX_MEMORY": value}
    [problem] = problems()
    assert problem.startswith("ATP['MAX_MEMORY']")


@pytest.mark.parametrize("release", ["x" * 65, "a\nb"])
def test_a_release_is_a_short_line(settings, release):
    settings.ATP = {"RELEASE": release}
    [problem] = problems()
    assert "must be one line of 64 characters at most" in problem


def test_a_time_of_nothing_for_misfits(settings):
    settings.ATP = {"MISFIT_FOR": 0, "RELEASE": "3f2a"}
    assert problems() == []
