"""OPTIONS of the setting TASKS, and the system checks of OPTIONS."""

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from atp.backend import ATPBackend
from atp.backend.frameworks import error
from atp.backend.task import BackendOptions
from atp.checks import check_tasks
from atp.management.commands.atpd import Command as Atpd
from atp.models import Instance
from atp.operations.registry import registry

from . import tasks


def options(**given):
    return BackendOptions("OPTIONS", given)


def entry(queues=(), **given):
    """Settings with one entry of TASKS that has these options."""
    made = {"BACKEND": "atp.backend.ATPBackend", "QUEUES": list(queues), "OPTIONS": given}
    return override_settings(TASKS={"default": made})


def messages(queues=(), **given):
    with entry(queues, **given):
        return [(message.id, message.msg) for message in check_tasks(None)]


def test_options_for_a_pattern_override_options_for_all_tasks():
    """If several patterns set a parameter, the last one wins, also over the value for all tasks."""
    found = options(
        timeout=9, max_retries=1, types={"a.*": {"timeout": 5, "weight": 2}, "a.b": {"timeout": 6}}
    )
    assert found.problems == []
    assert found.of("a.b") == {"timeout": 6, "max_retries": 1, "weight": 2}
    assert found.of("a.c") == {"timeout": 5, "max_retries": 1, "weight": 2}
    assert found.of("b.a") == {"timeout": 9, "max_retries": 1}
    # The settings of the tests say so.
    declared = registry.get("tests.backend.tasks.stubborn")
    assert (declared.max_retries, declared.backoff) == (2, 0)


def test_an_option_can_be_given_at_another_level_than_the_option_it_needs():
    for name, value, other, beside in (
        ("rate", "5/s", "burst", 2),
        ("downstream", "erp", "downstream_errors", ["OSError"]),
    ):
        both = {name: value, other: beside}
        for given in (
            both,
            {name: value, "types": {"a": {other: beside}}},
            {"types": {"*": {name: value}, "a": {other: beside}}},
        ):
            found = options(**given)
            assert (found.problems, found.of("a")) == ([], both)
    found = options(types={"a": {"burst": 2}, "b": {"rate": "5/s"}})
    assert found.problems == ["OPTIONS['types']['a']: burst=2: needs a rate, and none is given."]


def test_invalid_options_are_reported():
    for given, problem in (
        ({"timout": 5}, "OPTIONS has no key 'timout'. Did you mean 'timeout'?"),
        ({"priority": 5}, "OPTIONS has no key 'priority'. Set 'priority' on the task itself."),
        ({"timeout": "5"}, "OPTIONS: timeout must be seconds or a timedelta, not '5'."),
        (
            {"on_failed": "ops.alert"},
            "OPTIONS: on_failed: must be a Type that @task_type has declared, or a Type and a "
            "mapping of inputs, not 'ops.alert'. Give the Type itself, not its name.",
        ),
        ({"types": []}, "OPTIONS['types'] must be a dictionary, not []."),
        ({"types": {"a": 5}}, "OPTIONS['types']['a'] must be a dictionary, not 5."),
        (
            {"types": {"": {}}},
            "OPTIONS['types']['']: a pattern must be text, such as 'wagtail.tasks.*'.",
        ),
        (
            {"types": {"a": {"max_runing": 1}}},
            "OPTIONS['types']['a'] has no key 'max_runing'. Did you mean 'max_running'?",
        ),
        ({"modules": "shop"}, "OPTIONS['modules'] must be a list of names of modules, not 'shop'."),
        ({"modules": ["shop.x"]}, "OPTIONS['modules']: there is no module 'shop.x'."),
        ({"backoff": 5, "backoff_max": 1}, "OPTIONS: backoff=5 is longer than backoff_max=1."),
    ):
        assert options(**given).problems == [problem]
    assert BackendOptions("OPTIONS", ["timeout"]).problems == [
        "OPTIONS must be a dictionary, not ['timeout']."
    ]


# Django's own checks may ask SQLite for its features.
@pytest.mark.django_db
def test_invalid_options_fail_the_system_check_and_block_enqueue():
    """The error is reported once, also among the checks that atpd runs.

    The enqueue is refused because the task would otherwise run without its timeout (G13).
    """
    words = "TASKS['default']['OPTIONS'] has no key 'timout'. Did you mean 'timeout'?"
    assert messages(timout=5) == [("atp.E010", words)]
    with entry(timout=5):
        for found in (run_checks(), run_checks(tags=Atpd.requires_system_checks)):
            assert [message.id for message in found].count("atp.E010") == 1
        with pytest.raises(error("InvalidTaskBackend"), match="Did you mean 'timeout'"):
            tasks.add.enqueue(1)
    assert not Instance.objects.exists()


def test_the_check_reports_bad_queues_and_unmatched_patterns_of_the_backend(settings):
    assert messages(["default", "letters"], timeout=5) == []
    [(id, message)] = messages(["default", "two\nlines"])
    assert id == "atp.E012"
    assert "TASKS['default']['QUEUES']: a queue='two\\nlines'" in message
    [(id, message)] = messages(types={"tests.backend.task.*": {}, "tests.backend.*": {}})
    assert id == "atp.W013"
    assert "matches no task. Did you mean 'tests.backend.tasks'?" in message
    # Entries of others are theirs.
    settings.TASKS = None
    assert check_tasks(None) == []
    for given in ({"a": {}}, {"a": {"BACKEND": "no.such.Backend"}}, {"a": {"BACKEND": 5}}, ["a"]):
        settings.TASKS = given
        assert check_tasks(None) == []
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "atp"]
    [message] = ATPBackend("default", {"QUEUES": (), "OPTIONS": {}}).check()
    assert (message.id, message.msg) == (
        "atp.E011",
        "TASKS['default']: ATPBackend needs ATP's tables: add 'atp' to INSTALLED_APPS.",
    )
