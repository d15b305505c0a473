"""Tests of roles: a user with one permission can do what the permission allows, and no more.

These tests cover the admin and the shell. For each operation of the API and for each page,
``api/test_routes.py`` and ``views/test_access.py`` show that its permission is needed and enough.
"""

from collections import defaultdict

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from atp.admin.base import OperationActions
from atp.management.commands.atp import subcommands
from atp.models import Instance
from atp.operations.table import OPERATIONS
from atp.shell.base import needed_permissions

from .api.client import Api
from .generated import subcommand
from .helpers import shell
from .views.pages import ACTING

# The operations of the table that each permission allows.
MATRIX = {
    "operate": {
        *(f"instance {name}" for name in ("redrive", "release", "pause", "resume", "run-now")),
        *(f"instance {name}" for name in ("stack", "change", "cancel")),
        *("schedule run", "schedule backfill", "graph cancel", "graph redrive"),
        *("matching redrive", "matching cancel"),
        *(f"error {name}" for name in ("redrive", "mute", "unmute", "annotate")),
    },
    "control": {
        *(f"scope {name}" for name in ("hold", "drop", "open", "limit", "unlimit")),
        "scope end-session",
        *(f"daemon {name}" for name in ("quiet", "resume", "stop")),
        *(f"schedule {name}" for name in ("pause", "resume", "change", "leave", "delete")),
        *(f"downstream {name}" for name in ("bound", "reset", "trip")),
        *("tailer seek", "tailer forget"),
    },
    "delete_instance": {"instance delete", "scope purge", "matching delete", "error delete"},
}


def user(name, *permissions):
    """Return a new user with all view permissions and these to act."""
    found = User.objects.create_user(name, password="secret", is_staff=True)
    own = Permission.objects.filter(content_type__app_label="atp")
    found.user_permissions.set(own.filter(codename__startswith="view_"))
    found.user_permissions.add(*own.filter(codename__in=permissions))
    return found


def test_each_operation_needs_the_permission_that_the_matrix_names():
    """G14: ``MATRIX`` lists the operations that each permission allows."""
    found = {role: set() for role in MATRIX}
    for kind, verbs in OPERATIONS.items():
        for verb in verbs.values():
            found[verb.permission.removeprefix("atp.")].add(f"{kind} {verb.name}")
    assert found == MATRIX
    too = {
        verb.name for verbs in OPERATIONS.values() for verb in verbs.values() if verb.permission_too
    }
    assert too == {"change"}


def test_admin_offers_a_role_only_the_actions_of_its_permission(db, rf):
    """G14: a user with only one permission to act gets no other actions."""
    request = rf.get("/")
    for role in ACTING:
        request.user = user(role, role)
        offered = set()
        for model_admin in admin.site._registry.values():
            if isinstance(model_admin, OperationActions):
                names = model_admin.get_actions(request)
                offered |= {f"{model_admin.kind} {name.replace('_', '-')}" for name in names}
                assert not model_admin.has_add_permission(request)
        if role == "delete_instance":
            assert offered == {"instance delete-selected"}
        else:
            assert offered <= MATRIX.get(role, set())
        assert bool(offered) == (role != "enqueue")


@pytest.fixture
def olga(db):
    olga = User.objects.create_user("olga", password="secret")
    olga.user_permissions.add(Permission.objects.get(codename="enqueue"))
    return olga


def test_enqueue_page_takes_a_user_without_view_permissions_back_to_its_form(olga, client):
    client.force_login(olga)
    page = reverse("atp:enqueue", args=["tests.echo"])
    answer = client.post(page, {"inputs": "{}"})
    assert (answer.status_code, answer["Location"]) == (302, page)
    assert Instance.objects.get().created_by == "user olga via page"


def test_enqueue_that_shows_or_changes_another_instance_needs_more_permissions(full, olga, client):
    """G14: the permission to enqueue does not allow a user to redrive, change or view Instances."""
    client.force_login(olga)
    before = full.world.snapshot()
    for existing in ("return", "redrive", "replace", "debounce"):
        lacking = ["view_instance"] if existing == "return" else ["view_instance", "operate"]
        key = "identifier" if existing in ("return", "redrive") else "unique"
        body = {"type": "tests.echo", key: "a", "existing": existing, "run_after": 60}
        for sent in (body, [{"type": "tests.echo"}, body]):
            answer = Api(olga).post("instances", sent)
            assert answer.status_code == 403
            assert all(f"atp.{name}" in answer.json()["detail"] for name in lacking)
        form = {"inputs": "{}", key: "a", "existing": existing, "run_after": "60s"}
        assert client.post(reverse("atp:enqueue", args=["tests.echo"]), form).status_code == 403
    assert full.world.snapshot() == before


# The shell checks permissions only with --user.

UUID = "00000000-0000-7000-8000-000000000000"
# What the shell needs to know besides the name of an operation: by kind, and by operation.
ARGUMENTS = {
    "instance": UUID,
    "graph": UUID,
    "matching": "--all --yes",
    "daemon": "--all",
    "schedule": "nightly",
    "downstream": "relay",
    "tailer": "tests.tailer --shard a",
    "error": "7f3a",
    "tailer seek": "tests.tailer --shard a --position 5",
    "schedule backfill": "nightly --start 2026-01-01T00:00",
    "scope end-session": "--pid 1",
    "scope limit": "--max-running 3",
}
# Commands that are no operation of the table, or need more than it, and who can run them.
OTHERS = {
    "enqueue tests.echo": {"enqueue"},
    "enqueue tests.echo --identifier a --existing redrive": set(),
    f"delete {UUID} --cancel": set(),
    "schedule create nightly tests.echo --every 1h": set(),
    "check": {"operate"},
    "import-beat": set(),
}


def shell_commands():
    """Yield each operation as a command of the shell, and the roles that can run it."""
    for kind, verbs in OPERATIONS.items():
        for verb in verbs.values():
            operation = f"{kind} {verb.name}"
            arguments = ARGUMENTS.get(operation, ARGUMENTS.get(kind, ""))
            roles = {role for role, allowed in MATRIX.items() if operation in allowed}
            yield f"{subcommand(kind, verb)} {arguments}", set() if verb.permission_too else roles
    yield from OTHERS.items()


@pytest.mark.slow
def test_shell_refuses_the_operations_of_other_roles(full):
    """G14: with ``--user``, the shell checks the same permissions as the other user interfaces."""
    for role in ACTING:
        user(role, role)
        user(f"not-{role}", *{*ACTING} - {role})
    before = full.world.snapshot()
    for typed, roles in shell_commands():
        for name in [f"not-{role}" for role in roles] or ACTING:
            with pytest.raises(CommandError, match=r"lack the permission|cannot be used"):
                call_command("atp", "--user", name, *typed.split())
    assert full.world.snapshot() == before


def test_only_two_subcommands_cannot_be_used_with_a_user():
    without = []
    for name in (one.name for one in subcommands()):
        try:
            assert needed_permissions(name, defaultdict(lambda: None, order="quiet"))
        except CommandError:
            without.append(name)
    assert without == ["import-beat", "pilots"]


def test_log_names_the_user_of_a_shell_command(olga):
    shell("--user", "olga", "enqueue", "tests.echo", "{}")
    made = Instance.objects.latest("pk")
    assert made.created_by == "user olga via shell"
    with pytest.raises(CommandError, match="There is no user 'eve'"):
        call_command("atp", "--user", "eve", "list")
    with pytest.raises(CommandError, match=r"lack the permission atp\.view_instance"):
        call_command("atp", "--user", "olga", "list")
    olga.user_permissions.add(*Permission.objects.filter(codename__in=["view_instance", "operate"]))
    shell("--user", "olga", "cancel", str(made.uuid))
    assert made.log.last().who == "user olga via shell"
