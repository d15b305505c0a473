"""Middleware around handlers, and what is carried from the enqueue: ``atp.middleware``."""

import io
import json
from datetime import timedelta
from datetime import timezone as fixed
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from atp import middleware as carrying
from atp import options, queue
from atp.daemon.shared.outcome import Kind
from atp.daemon.worker import execution
from atp.exceptions import NotSerializable, TooLarge
from tests.samples import claimed

from .api.client import Api
from .app import middleware
from .app.middleware import tenant
from .app.tasks import echo

OF_ATP = ["atp.middleware.Language", "atp.middleware.TimeZone"]
TENANT = "tests.app.middleware.Tenant"


class Unequal(dict):
    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None


@pytest.fixture
def configured(settings):
    """Set ``MIDDLEWARE`` of the tests by their names, and ``CARRIERS`` by their paths."""

    def configure(*names, carriers=(TENANT, *OF_ATP)):
        paths = [f"tests.app.middleware.{name}" for name in names]
        settings.ATP = settings.ATP | {"MIDDLEWARE": paths, "CARRIERS": list(carriers)}

    middleware.seen.clear()
    middleware.made.clear()
    return configure


@pytest.fixture(autouse=True)
def same_afterwards():
    token = tenant.set(None)
    yield
    tenant.reset(token)


def run(context, type="tests.echo", **carried):
    task = claimed(7, type)._replace(own=options.own_options(carried=carried or None))
    return execution.run(task, context)


def answer(outcome):
    assert outcome.kind is Kind.FINISHED, outcome
    return json.loads(outcome.response.data)


class TestMiddleware:
    def test_the_first_is_the_outermost(self, configured, context):
        """Each is made once, and one that is not used is left out."""
        configured("outer", "unused", "Inner")
        assert answer(run(context)) == {"wrapped": {}}
        assert middleware.seen == [("outer", None), ("inner", "tests.echo"), "left"]
        run(context)
        assert middleware.made.count("outer") == 1

    def test_it_sees_what_is_carried(self, configured, context):
        """Around functions and coroutines."""
        configured("outer")
        for type in ("tests.carried", "tests.carried.async"):
            middleware.seen.clear()
            assert answer(run(context, type, tenant="esa"))[2] == "esa"
            assert middleware.seen == [("outer", "esa"), "left"]
            assert tenant.get() is None

    def test_its_errors_are_the_attempts(self, configured, context):
        for name, kind, message in (
            ("raises", Kind.ERROR, "ValueError: of the middleware"),
            ("retries", Kind.RETRY, "not now"),
            ("makes_nothing", Kind.ERROR, "makes_nothing returned None: must be a plain function"),
            ("makes_a_coroutine", Kind.ERROR, "must be a plain function of one context"),
            ("missing", Kind.ERROR, "ATP['MIDDLEWARE']: 'tests.app.middleware.missing'"),
        ):
            configured(name)
            outcome = run(context)
            assert outcome.kind is kind
            assert message in outcome.message


def statements(call):
    """Return the number of statements of a call, once those are prepared that it executes."""
    for _ in range(5):
        call()
    with CaptureQueriesContext(connection) as captured:
        call()
    return len(captured)


class TestCarrying:
    def test_an_enqueue_that_carries_takes_no_statement_more(self, configured, db):
        configured()
        assert queue.get(echo.enqueue().uuid).own is None
        without = statements(echo.enqueue)
        tenant.set({"id": "a\\u0000b"})
        assert statements(echo.enqueue) == without
        made = echo.enqueue_many([{}, {}])
        assert [queue.get(each.uuid).carried for each in made] == [{"tenant": tenant.get()}] * 2

    def test_language_and_time_zone_are_restored_and_put_back(self, configured, context, db):
        configured()
        with translation.override("de"), timezone.override(ZoneInfo("Europe/Vienna")):
            made = echo.enqueue()
        values = {"language": "de", "time_zone": "Europe/Vienna"}
        assert queue.get(made.uuid).carried == values
        values["tenant"] = 7
        assert answer(run(context, "tests.carried", **values)) == ["de", "Europe/Vienna", 7]
        assert translation.get_language() == "en-us"
        assert timezone.get_current_timezone_name() == "UTC"
        with timezone.override(fixed(timedelta(hours=2))):
            values = carrying.save_context()
        assert answer(run(context, "tests.carried", **values))[1] == "+0200"

    def test_an_error_of_a_carrier_is_the_attempts(self, configured, context):
        configured(carriers=OF_ATP)
        assert answer(run(context, "tests.carried", tenant="closed"))[2] is None  # nobody's
        configured()
        outcome = run(context, "tests.carried", tenant="closed")
        assert outcome.kind is Kind.ERROR
        assert "there is no such tenant any more" in outcome.message
        assert "No time zone found" in run(context, "tests.carried", time_zone="Moon/Sea").message

    def test_what_would_not_come_back_is_refused(self, configured, db):
        configured()
        for value in (
            *(object(), (1, 2), {1: 2}, float("nan"), "a\x00b", "a\ud800b", b"x"),
            *({"a": [1e300]}, -0.0, Unequal()),
        ):
            tenant.set(value)
            with pytest.raises(NotSerializable, match="The carrier 'tenant' saved"):
                echo.enqueue()
        tenant.set("x" * 5000)
        with pytest.raises(TooLarge, match="4096 are allowed"):
            echo.enqueue()
        configured(carriers=["shop.missing"])
        with pytest.raises(ImproperlyConfigured, match=r"ATP\['CARRIERS'\]: 'shop.missing'"):
            echo.enqueue()
        assert queue.size() == 0


def test_each_surface_shows_what_was_carried_to_whoever_may_see_inputs(configured, db, client):
    configured()
    tenant.set("esa")
    made = echo.enqueue()
    user = User.objects.create_user("ann", password="secret")
    client.force_login(user)
    allowed = Permission.objects.filter(content_type__app_label="atp")
    user.user_permissions.set(allowed.filter(codename="view_instance"))
    page = f"/atp/instances/{made.uuid}/"
    assert "Carried from its enqueue" not in client.get(page).content.decode()
    user.user_permissions.set(allowed.filter(codename__in=["view_instance", "view_inputs"]))
    assert "Carried from its enqueue" in client.get(page).content.decode()
    api = Api(User.objects.create_superuser("root", password="secret"))
    assert api.get(f"instances/{made.uuid}/inputs").json()["carried"] == {"tenant": "esa"}
    out = io.StringIO()
    call_command("atp", "show", str(made.uuid), stdout=out)
    assert "carried\n  tenant" in out.getvalue()


def test_what_cannot_be_used_is_an_error_of_the_check(settings):
    odd = "tests.app.middleware"
    same, function = [TENANT, f"{odd}.SameName"], "must be a function or a class that takes run"
    listed = "ATP['{}'] must be list or tuple, not 'shop.timing'"
    for name, value, message in (
        ("MIDDLEWARE", ["shop.missing"], "ATP['MIDDLEWARE']: 'shop.missing': No module"),
        ("MIDDLEWARE", ["timing"], "ATP['MIDDLEWARE']: 'timing':"),
        ("MIDDLEWARE", [5], "ATP['MIDDLEWARE'] must be a list of dotted paths; 5 is"),
        ("MIDDLEWARE", ["math.pi"], function),
        ("MIDDLEWARE", [f"{odd}.is_a_coroutine"], function),
        ("CARRIERS", [f"{odd}.missing"], "ATP['CARRIERS']:"),
        ("CARRIERS", [f"{odd}.NotAClass"], "is not a carrier"),
        ("CARRIERS", [f"{odd}.outer"], "is not a carrier"),
        ("CARRIERS", [f"{odd}.Unnamed"], "the name of"),
        ("CARRIERS", [f"{odd}.Unmade"], "cannot be made"),
        ("CARRIERS", same, "and Tenant have the same name, 'tenant'"),
        ("MIDDLEWARE", "shop.timing", listed.format("MIDDLEWARE")),
        ("CARRIERS", "shop.timing", listed.format("CARRIERS")),
    ):
        id = "atp.E001" if isinstance(value, str) else "atp.E020"
        with override_settings(ATP=settings.ATP | {name: value}):
            [found] = [each for each in run_checks() if each.id == id]
        assert message in found.msg, value
