"""Tests of roles: a user with one permission can do what the permission allows, and no more.

These tests cover the admin and the shell. For each operation of the API and for each page,
``api/test_routes.py`` and ``views/test_access.py`` show that its permission is needed and enough.
"""

from collections import defaultdict
from io import StringIO

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from atp import queue
from atp.admin.base import OperationActions
from atp.management.commands.atp import subcommands
from atp.models import Instance
from atp.operations.table import OPERATIONS
from atp.shell.base import needed_permissions

from .api.client import Api
from .generated import subcommand
from .populated import populate
from .views.pages import ACTING

# The operations of the table that each permission allows.
MATRIX = {
    "operate": {
        *(
            f"instance {name}"
            for name in ("redrive", "release", "pause", "resume", "run-now", "stack")
        ),
        *(f"instance {name}" for name in ("change", "cancel")),
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


@pytest.fixture
def full(world, media):
    return populate(world)


def user(role):
    """Return a new user with all view permissions and one to act."""
    found = User.objects.create_user(role, password="secret", is_staff=True)
    own = Permission.objects.filter(content_type__app_label="atp")
    found.user_permissions.set(own.filter(codename__startswith="view_"))
    found.user_permissions.add(own.get(codename=role))
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
        request.user = user(role)
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
    """Return a user who has only the permission to enqueue."""
    olga = User.objects.create_user("olga", password="secret")
    olga.user_permissions.add(Permission.objects.get(codename="enqueue"))
    return olga


def test_user_with_only_the_permission_to_enqueue_can_enqueue(olga, client):
    """No view permission is needed, because the answer shows only the user's own Instance."""
    answer = Api(olga).post("instances", {"type": "tests.echo", "inputs": {"a": 1}})
    assert answer.status_code == 201
    assert queue.get(answer.json()["uuid"]).created_by == "user olga via API"
    client.force_login(olga)
    page = reverse("atp:enqueue", args=["tests.echo"])
    assert client.get(page).status_code == 200
    answer = client.post(page, {"inputs": "{}"})
    assert (answer.status_code, answer["Location"]) == (302, page)
    assert Instance.objects.latest("pk").created_by == "user olga via page"


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
# Commands, and the roles that can run them. Other roles are refused before any lookup.
SHELL = {
    "enqueue tests.echo": {"enqueue"},
    "enqueue tests.echo --identifier a --existing redrive": set(),
    **{
        f"{name} {UUID}": {"operate"}
        for name in ("redrive", "release", "pause", "resume", "run-now", "cancel", "stack")
    },
    f"change {UUID} --priority 3": {"operate"},
    "redrive --all --yes": {"operate"},
    "cancel --type tests.echo --yes": {"operate"},
    f"delete {UUID}": {"delete_instance"},
    f"delete {UUID} --cancel": set(),
    "delete --type tests.echo --yes": {"delete_instance"},
    "purge": {"delete_instance"},
    "end-session --pid 1": {"control"},
    **{f"gate {mode} --type tests.echo": {"control"} for mode in ("hold", "drop", "open")},
    "limit --type tests.echo --max-running 3": {"control"},
    "limit --type tests.echo --default": {"control"},
    **{f"downstream {name} relay": {"control"} for name in ("reset", "trip")},
    "downstream bound relay --ceiling 3": {"control"},
    "schedule create nightly tests.echo --every 1h": set(),
    "schedule change nightly --priority 3": set(),
    **{f"schedule {name} nightly": {"control"} for name in ("pause", "resume", "leave", "delete")},
    "schedule run nightly": {"operate"},
    "schedule backfill nightly --start 2026-01-01T00:00": {"operate"},
    "tailer seek tests.tailer --shard a --position 5": {"control"},
    "tailer forget tests.tailer --shard a": {"control"},
    **{f"graph {name} {UUID}": {"operate"} for name in ("cancel", "redrive")},
    **{f"error {name} 7f3a": {"operate"} for name in ("redrive", "mute", "unmute")},
    "error annotate 7f3a --note x": {"operate"},
    "error delete 7f3a --yes": {"delete_instance"},
    **{f"daemon {name} --all": {"control"} for name in ("quiet", "resume", "stop")},
    "check": {"operate"},
    "import-beat": set(),
}


@pytest.mark.slow
def test_shell_refuses_the_operations_of_other_roles(full):
    """G14: with ``--user``, the shell checks the same permissions as the other user interfaces."""
    for role in ACTING:
        user(role)
    before = full.world.snapshot()
    for typed, roles in SHELL.items():
        for role in {*ACTING} - roles:
            with pytest.raises(CommandError, match=r"lack the permission|cannot be used"):
                call_command("atp", "--user", role, *typed.split())
    assert full.world.snapshot() == before


def takes_a_user(name):
    try:
        return bool(needed_permissions(name, defaultdict(lambda: None, order="quiet")))
    except CommandError:
        return False


def test_shell_needs_a_permission_for_every_operation():
    """``SHELL`` has a line for each operation. Two subcommands cannot be used with a user."""
    typed = {tuple(line.split()[:count]) for line in SHELL for count in (1, 2)}
    for kind, verbs in OPERATIONS.items():
        for verb in verbs.values():
            words = [word for word in subcommand(kind, verb).split() if word[0] != "-"]
            assert tuple(words) in typed
    without = [one.name for one in subcommands() if not takes_a_user(one.name)]
    assert without == ["import-beat", "pilots"]


def test_log_names_the_user_of_a_shell_command(olga):
    call_command("atp", "--user", "olga", "enqueue", "tests.echo", "{}", stdout=StringIO())
    made = Instance.objects.latest("pk")
    assert made.created_by == "user olga via shell"
    with pytest.raises(CommandError, match="There is no user 'eve'"):
        call_command("atp", "--user", "eve", "list")
    with pytest.raises(CommandError, match=r"lack the permission atp\.view_instance"):
        call_command("atp", "--user", "olga", "list")
    olga.user_permissions.add(*Permission.objects.filter(codename__in=["view_instance", "operate"]))
    call_command("atp", "--user", "olga", "cancel", str(made.uuid), stdout=StringIO())
    assert made.log.last().who == "user olga via shell"
