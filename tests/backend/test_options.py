"""OPTIONS of the setting TASKS, and the system checks of it."""

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from atp.backend import ATPBackend
from atp.backend.options import BackendOptions
from atp.checks import check_tasks
from atp.management.commands.atpd import Command as Atpd

from . import tasks


def options(**given):
    return BackendOptions("OPTIONS", given)


def backend(queues=(), **given):
    return ATPBackend("default", {"QUEUES": queues, "OPTIONS": given})


def entry(queues=(), **given):
    """The settings with this entry of TASKS."""
    made = {"BACKEND": "atp.backend.ATPBackend", "QUEUES": list(queues), "OPTIONS": given}
    return override_settings(TASKS={"default": made})


def messages(queues=(), **given):
    with entry(queues, **given):
        return [(message.id, message.msg) for message in check_tasks(None)]


def test_parameters_for_all_and_by_pattern():
    """The later of two patterns holds, both over what is for all."""
    found = options(
        timeout=9, max_retries=1, types={"a.*": {"timeout": 5, "weight": 2}, "a.b": {"timeout": 6}}
    )
    assert found.problems == []
    assert found.of("a.b") == {"timeout": 6, "max_retries": 1, "weight": 2}
    assert found.of("a.c") == {"timeout": 5, "max_retries": 1, "weight": 2}
    assert found.of("b.a") == {"timeout": 9, "max_retries": 1}


@pytest.mark.parametrize(
    ("name", "value", "other", "beside"),
    [("rate", "5/s", "burst", 2), ("downstream", "erp", "downstream_errors", ["OSError"])],
)
def test_a_parameter_that_says_something_only_beside_another(name, value, other, beside):
    both = {name: value, other: beside}
    for given in (
        both,
        {"types": {"a": both}},
        {name: value, "types": {"a": {other: beside}}},
        {"types": {"*": {name: value}, "a": {other: beside}}},
    ):
        found = options(**given)
        assert (found.problems, found.of("a")) == ([], both)


def test_a_parameter_without_the_one_that_it_needs():
    found = options(types={"a": {"burst": 2}, "b": {"rate": "5/s"}})
    assert found.problems == ["OPTIONS['types']['a']: burst=2: needs a rate, and none is given."]
    assert options(rate="x", burst=2).problems == options(rate="x").problems


def test_a_pattern_gives_parameters_to_somebody_elses_task():
    from atp.verbs.registry import registry

    declared = registry.get("tests.backend.tasks.stubborn")
    assert (declared.max_retries, declared.backoff) == (2, 0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"timout": 5}, "OPTIONS has no key 'timout'. Did you mean 'timeout'?"),
        ({"priority": 5}, "OPTIONS has no key 'priority'. The task says that itself: priority."),
        ({"timeout": "5"}, "OPTIONS: timeout must be seconds or a timedelta, not '5'."),
        (
            {"on_failed": "ops.alert"},
            "OPTIONS: on_failed: must be a Type that @task_type has declared, or a Type and a "
            "mapping of inputs, not 'ops.alert'. Give the Type itself, not its name.",
        ),
        ({"types": []}, "OPTIONS['types'] must be a dictionary, not []."),
        ({"types": {"a": 5}}, "OPTIONS['types']['a'] must be a dictionary, not 5."),
        ({"types": {"": {}}}, "OPTIONS['types']['']: a pattern is text, as in 'wagtail.tasks.*'."),
        (
            {"types": {"a": {"collection": "x"}}},
            "OPTIONS['types']['a'] has no key 'collection'. The task says that itself: queue_name.",
        ),
        (
            {"types": {"a": {"max_runing": 1}}},
            "OPTIONS['types']['a'] has no key 'max_runing'. Did you mean 'max_running'?",
        ),
        (
            {"types": {"a": {"max_retries": -1}}},
            "OPTIONS['types']['a']: max_retries must be a whole number from 0 to 1000000, not -1.",
        ),
        ({"modules": "shop"}, "OPTIONS['modules'] must be a list of names of modules, not 'shop'."),
        ({"modules": ["shop.x"]}, "OPTIONS['modules']: there is no module 'shop.x'."),
        ({"backoff": 5, "backoff_max": 1}, "OPTIONS: backoff=5 is longer than backoff_max=1."),
    ],
)
def test_what_is_wrong_with_them(given, problem):
    assert options(**given).problems == [problem]


def test_options_that_are_no_dictionary():
    assert BackendOptions("OPTIONS", ["timeout"]).problems == [
        "OPTIONS must be a dictionary, not ['timeout']."
    ]


def test_what_is_wrong_is_a_system_check():
    [(id, message)] = messages(timout=5)
    assert (id, message) == (
        "atp.E010",
        "TASKS['default']['OPTIONS'] has no key 'timout'. Did you mean 'timeout'?",
    )


# Django's own checks may ask SQLite for its features.
@pytest.mark.django_db
def test_a_daemon_does_not_start_with_it():
    """atpd runs some of the checks only, and those of ``django.tasks`` are not among them."""
    with entry(timout=5):
        found = run_checks(tags=Atpd.requires_system_checks)
    assert "atp.E010" in [message.id for message in found]


# Django's own checks may ask SQLite for its features.
@pytest.mark.django_db
def test_it_is_told_once():
    with entry(timout=5):
        found = [message.id for message in run_checks()]
    assert found.count("atp.E010") == 1


@pytest.mark.parametrize(
    "tasks",
    [None, {}, {"a": {}}, {"a": {"BACKEND": "no.such.Backend"}}, {"a": {"BACKEND": 5}}, ["a"]],
)
def test_entries_of_others_are_theirs(settings, tasks):
    settings.TASKS = tasks
    assert check_tasks(None) == []


def test_nothing_is_wrong():
    assert messages(["default", "letters"], timeout=5) == []


def test_a_queue_that_is_no_collection():
    [(id, message)] = messages(["default", "two\nlines"])
    assert id == "atp.E012"
    assert "TASKS['default']['QUEUES']: a queue='two\\nlines'" in message


def test_a_pattern_without_a_task():
    [(id, message)] = messages(types={"tests.backend.task.*": {}, "tests.backend.*": {}})
    assert id == "atp.W013"
    assert "is the path of no task. Did you mean 'tests.backend.tasks'?" in message


def test_atp_is_not_installed(settings):
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "atp"]
    [message] = backend().check()
    assert (message.id, message.msg) == (
        "atp.E011",
        "TASKS['default']: ATPBackend needs ATP's tables: add 'atp' to INSTALLED_APPS.",
    )


@pytest.mark.django_db
def test_with_wrong_options_nothing_is_enqueued():
    """G13: what could run without its time-out is refused."""
    from atp.backend.frameworks import error
    from atp.models import Instance

    with (
        override_settings(
            TASKS={"default": {"BACKEND": "atp.backend.ATPBackend", "OPTIONS": {"timout": 5}}}
        ),
        pytest.raises(error("InvalidTaskBackend"), match="Did you mean 'timeout'"),
    ):
        tasks.add.enqueue(1)
    assert not Instance.objects.exists()
