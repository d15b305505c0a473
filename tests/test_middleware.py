"""Tests of middleware around handlers, and of carriers, which save values at the enqueue."""

import asyncio
import json
from datetime import timedelta
from datetime import timezone as fixed
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from atp import middleware as carrying
from atp import options, queue
from atp.daemon.outcomes import Kind
from atp.daemon.worker import execution
from atp.exceptions import NotSerializable, TooLarge
from tests.samples import claimed

from .api.client import Api
from .app import middleware
from .app.middleware import tenant
from .app.tasks import echo
from .helpers import shell

OF_ATP = ["atp.middleware.Language", "atp.middleware.TimeZone"]
TENANT = "tests.app.middleware.Tenant"


class Unequal(dict):
    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None


@pytest.fixture
def configured(settings):
    """Return a function that sets ``MIDDLEWARE`` by names and ``CARRIERS`` by dotted paths."""

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
    task = claimed(7, type, own=options.own_options(carried=carried or None))
    return execution.run(task, context)


def answer(outcome):
    assert outcome.kind is Kind.FINISHED, outcome
    return json.loads(outcome.response.data)


class TestMiddleware:
    def test_first_middleware_is_the_outermost_and_each_sees_carried_values(
        self, configured, context
    ):
        """Each middleware is created once. The handler can be a function or a coroutine."""
        configured("outer", "unused", "Inner")
        assert answer(run(context)) == {"wrapped": {}}
        assert middleware.seen == [("outer", None), ("inner", "tests.echo"), "left"]
        run(context)
        assert middleware.made.count("outer") == 1
        configured("outer")
        for type in ("tests.carried", "tests.carried.async"):
            middleware.seen.clear()
            assert answer(run(context, type, tenant="esa"))[2] == "esa"
            assert middleware.seen == [("outer", "esa"), "left"]
            assert tenant.get() is None

    def test_error_of_a_middleware_or_carrier_is_the_outcome_of_the_attempt(
        self, configured, context
    ):
        for name, kind, message in (
            ("raises", Kind.ERROR, "ValueError: of the middleware"),
            ("retries", Kind.RETRY, "not now"),
            ("makes_nothing", Kind.ERROR, "returned None. It must return a plain function"),
            ("makes_a_coroutine", Kind.ERROR, "must return a plain function"),
            ("missing", Kind.ERROR, "ATP['MIDDLEWARE']: 'tests.app.middleware.missing'"),
        ):
            configured(name)
            outcome = run(context)
            assert outcome.kind is kind
            assert message in outcome.message
        configured()
        for carried, message in (
            ({"tenant": "closed"}, "there is no such tenant any more"),
            ({"time_zone": "Moon/Sea"}, "No time zone found"),
        ):
            outcome = run(context, "tests.carried", **carried)
            assert outcome.kind is Kind.ERROR
            assert message in outcome.message
        configured(carriers=OF_ATP)  # the tenant is no longer restored
        assert answer(run(context, "tests.carried", tenant="closed"))[2] is None


class TestMiddlewareOfLoops:
    """Attempts of a Type with a concurrency are awaited inside the middleware."""

    def test_only_middleware_that_is_async_capable_wraps_both_kinds_of_attempts(
        self, configured, context
    ):
        async def answer_at_once():
            return 42

        configured("both")
        assert answer(run(context)) == {}
        assert asyncio.run(carrying.run_async(context, answer_at_once)) == 42
        assert middleware.seen == ["both, called", "both, awaited"]
        for name, words in (
            ("outer", "outer is not async_capable"),
            ("only_called", "It must return one, too"),
        ):
            configured(name)
            with pytest.raises(ImproperlyConfigured, match=words):
                asyncio.run(carrying.run_async(context, answer_at_once))
        configured("both", "outer")
        [found] = [each for each in run_checks() if each.id == "atp.E024"]
        assert "tests.app.middleware.outer is not async_capable" in found.msg


def statements(call):
    """Return the number of SQL statements of a call after some calls to warm up."""
    for _ in range(5):
        call()
    with CaptureQueriesContext(connection) as captured:
        call()
    return len(captured)


class TestCarrying:
    def test_carried_values_add_no_sql_statement_to_an_enqueue(self, configured, db):
        configured()
        assert queue.get(echo.enqueue().uuid).own is None
        without = statements(echo.enqueue)
        tenant.set({"id": "a\\u0000b"})
        assert statements(echo.enqueue) == without
        made = echo.enqueue_many([{}, {}])
        assert [queue.get(each.uuid).carried for each in made] == [{"tenant": tenant.get()}] * 2

    def test_language_and_time_zone_are_set_for_the_handler_and_reset_afterwards(
        self, configured, context, db
    ):
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

    def test_enqueue_rejects_carried_values_that_cannot_be_restored(self, configured, db):
        configured()
        for value in (
            *(object(), (1, 2), {1: 2}, float("nan"), "a\x00b", "a\ud800b", b"x"),
            *({"a": [1e300]}, -0.0, Unequal()),
        ):
            tenant.set(value)
            with pytest.raises(NotSerializable, match="The carrier 'tenant' saved"):
                echo.enqueue()
        tenant.set("x" * 5000)
        with pytest.raises(TooLarge, match="only 4096 are allowed"):
            echo.enqueue()
        configured(carriers=["shop.missing"])
        with pytest.raises(ImproperlyConfigured, match=r"ATP\['CARRIERS'\]: 'shop.missing'"):
            echo.enqueue()
        assert queue.size() == 0


def test_carried_values_are_shown_only_with_the_permission_to_see_inputs(
    configured, db, client, admin_user
):
    configured()
    tenant.set("esa")
    made = echo.enqueue()
    user = User.objects.create_user("ann", password="secret")
    client.force_login(user)
    for names, is_shown in ((["view_instance"], False), (["view_instance", "view_inputs"], True)):
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        page = client.get(f"/atp/instances/{made.uuid}/").content.decode()
        assert ("Carried from its enqueue" in page) is is_shown
    told = Api(admin_user).get(f"instances/{made.uuid}/inputs").json()
    assert told["carried"] == {"tenant": "esa"}
    assert "carried\n  tenant" in shell("show", str(made.uuid))


def test_check_reports_middleware_and_carriers_that_cannot_be_used(settings):
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
        ("CARRIERS", [f"{odd}.Unmade"], "cannot be instantiated"),
        ("CARRIERS", same, "and Tenant have the same name, 'tenant'"),
        ("MIDDLEWARE", "shop.timing", listed.format("MIDDLEWARE")),
        ("CARRIERS", "shop.timing", listed.format("CARRIERS")),
    ):
        id = "atp.E001" if isinstance(value, str) else "atp.E020"
        with override_settings(ATP=settings.ATP | {name: value}):
            [found] = [each for each in run_checks() if each.id == id]
        assert message in found.msg, value
