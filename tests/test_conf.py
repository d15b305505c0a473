"""Tests of the settings in ``ATP`` (:mod:`atp.conf`)."""

from datetime import timedelta

import pytest

from atp import conf
from atp.conf import InvalidSetting, setting_problems


@pytest.fixture(autouse=True)
def nothing_given(settings):
    """Run each test as in a project whose ``ATP`` is empty."""
    settings.ATP = {}


def test_settings_have_defaults_and_are_read_again_after_a_change(settings):
    assert conf.settings.LEASE == 30.0
    assert timedelta(hours=1) == conf.settings.TIMEOUT
    del settings.ATP
    assert conf.settings.LEASE == 30.0
    assert setting_problems() == []
    for name, value in (
        *(("LEASE", 60), ("LEASE", 90)),
        *(("TIMEOUT", None), ("TIMEOUT", 5), ("TIMEOUT", timedelta(minutes=5))),
        *(("RETENTION", 0), ("RETENTION", timedelta(days=30)), ("BACKOFF", 0), ("GRACE", 0)),
        *(("MAX_RETRIES", 0), ("ALLOW_PICKLE", True), ("POLL_EVERY", 1), ("MISFIT_FOR", 0)),
        ("RELEASE", "3f2a"),
    ):
        settings.ATP = {name: value}
        assert setting_problems() == []
        assert getattr(conf.settings, name) == value


def test_unknown_setting_is_reported_with_the_closest_known_name(settings):
    """G13: the message asks ``Did you mean``."""
    for name, hint in (("LEASES", "LEASE"), ("lease", "LEASE"), ("POLL_EVRY", "POLL_EVERY")):
        settings.ATP = {name: 1}
        assert setting_problems() == [f"ATP has an unknown key {name!r}. Did you mean {hint!r}?"]
    settings.ATP = {"ZZZZ": 1}
    assert setting_problems() == ["ATP has an unknown key 'ZZZZ'."]
    settings.ATP = [("LEASE", 30)]
    assert setting_problems() == ["ATP must be a dictionary, not list."]


def test_setting_of_the_wrong_type_is_reported_and_raises_when_read(settings):
    """G13: the system check reports the problem, and reading the setting raises an exception."""
    numbers = [None, "30", True, timedelta(seconds=30), 0, -1, float("inf"), float("nan")]
    for name, values in {
        "LEASE": numbers,
        "MAX_RESTARTS": [1.5, -1, False],
        "TIMEOUT": ["1h", 0, timedelta.max],
        "BACKOFF": [timedelta(seconds=-1), 1e15],
        "ALLOW_PICKLE": [1],
        "DATABASE": [None],
        "LOG_LEVEL": [20],
        "RETENTION": [timedelta(days=999_999), 10**400],
        "MAX_RETRIES": [10**20],
        "METRICS_TOKEN": [b"swordfish"],
    }.items():
        for value in values:
            settings.ATP = {name: value}
            [problem] = setting_problems()
            assert problem.startswith(f"ATP['{name}'] must be")
            assert "fish" not in problem  # the message does not contain the secret
            with pytest.raises(InvalidSetting, match=name):
                getattr(conf.settings, name)


def test_setting_with_an_unusable_value_is_reported(settings):
    """G13: the message names the setting, and does not contain a secret."""
    for name, value in (
        *(("MAX_INPUTS_SIZE", 0), ("MAX_INPUTS_SIZE", 1), ("POLL_EVERY", 1e8)),
        *(("SWEEP_EVERY", 86401.0), ("RELEASE", "x" * 65), ("RELEASE", "a\nb")),
        *(("MAX_MEMORY", 0), ("MAX_MEMORY", ""), ("MAX_MEMORY", "512MiBs")),
        *(("METRICS_TOKEN", "swordfish\n"), ("METRICS_TOKEN", "sword fish")),
        ("METRICS_TOKEN", "swordfish-ü"),
        *(("OGC_HOSTS", [5]), ("OGC_HOSTS", ["https://"]), ("OGC_HOSTS", ["a.example.org:80"])),
        *(("OGC_HOSTS", ["http://localhost/"]), ("OGC_HOSTS", [""])),
    ):
        settings.ATP = {name: value}
        [problem] = setting_problems()
        assert problem.startswith(f"ATP['{name}']")
        assert "fish" not in problem


def test_lease_settings_that_contradict_each_other_are_reported(settings):
    """G3: the workers of a daemon must be dead before another daemon can take their Tasks."""
    for given, told in (
        ({"KILL_AFTER": 29.5}, "KILL_AFTER"),
        ({"KILL_AFTER": 30}, "KILL_AFTER"),
        ({"LEASE": 26}, "KILL_AFTER"),
        ({"RENEW_EVERY": 21}, "RENEW_EVERY"),
        ({"STATEMENT_TIMEOUT": 21}, "STATEMENT_TIMEOUT"),
    ):
        settings.ATP = given
        [problem] = setting_problems()
        assert f"ATP['{told}']" in problem
    settings.ATP = {"LEASE": 27, "RENEW_EVERY": 20.9}
    assert setting_problems() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"BACKEND": "atp.executors.Dsk"}, "Did you mean 'atp.executors.Dask'?"),
        ({"BACKEND": "atp.executers.Ray"}, "cannot be imported: No module named 'atp.executers'"),
        ({"BACKEND": "Dask"}, "cannot be imported"),
        ({"BACKEND": "atp.executors.EngineAway"}, "must be a subclass of atp.executors.Executor"),
        ({"BACKEND": "atp.executors.stub"}, "must be a subclass of atp.executors.Executor"),
        ({"BACKEND": "atp.executors.Dask"}, "needs ADDRESS, since BACKEND is"),
        ({"BACKEND": "atp.executors.Dask", "ADDRESS": 8786}, "needs ADDRESS, since BACKEND is"),
        ({}, "needs BACKEND, as in 'atp.executors.Dask'"),
    ],
)
def test_wrong_executor_is_reported(settings, options, said):
    settings.ATP = {"EXECUTORS": {"dask": {"SLOTS": 8} | options}}
    [problem] = setting_problems()
    assert problem.startswith("ATP['EXECUTORS']['dask']")
    assert said in problem
    settings.ATP = {"EXECUTORS": {"ray": {"SLOTS": 8, "BACKEND": "atp.executors.Ray"}}}
    assert setting_problems() == []
