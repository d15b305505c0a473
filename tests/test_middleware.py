"""Middleware around handlers, and what is carried from the enqueue: ``atp.middleware``."""

import io
import json
from datetime import timedelta
from datetime import timezone as fixed
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from atp import queue
from atp.daemon.shared.outcome import Kind
from atp.daemon.worker import execution
from atp.exceptions import NotSerializable, TooLarge
from atp.middleware import carrying, onion
from atp.payload import own
from atp.store.postgresql.driver.statements import THRESHOLD
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
    task = claimed(7, type)._replace(own=own.of(carried=carried or None))
    return execution.run(task, context)


def answer(outcome):
    assert outcome.kind is Kind.FINISHED, outcome
    return json.loads(outcome.response.data)


class TestMiddleware:
    def test_the_first_is_the_outermost(self, configured, context):
        configured("outer", "Inner")
        assert answer(run(context)) == {"wrapped": {}}
        assert middleware.seen == [("outer", None), ("inner", "tests.echo"), "left"]

    def test_each_layer_is_made_once(self, configured, context):
        configured("outer")
        run(context)
        run(context)
        assert middleware.made == ["outer"]

    def test_one_that_is_not_used_is_left_out(self, configured, context):
        configured("unused", "Inner")
        assert answer(run(context)) == {"wrapped": {}}

    @pytest.mark.parametrize("type", ["tests.carried", "tests.carried.async"])
    def test_it_sees_what_is_carried(self, configured, context, type):
        """Around functions and coroutines."""
        configured("outer")
        assert answer(run(context, type, tenant="esa"))[2] == "esa"
        assert middleware.seen == [("outer", "esa"), "left"]
        assert tenant.get() is None

    @pytest.mark.parametrize(
        ("name", "kind", "message"),
        [
            ("raises", Kind.ERROR, "ValueError: of the middleware"),
            ("retries", Kind.RETRY, "not now"),
            ("makes_nothing", Kind.ERROR, "makes_nothing returned None: must be a plain function"),
            ("makes_a_coroutine", Kind.ERROR, "must be a plain function of one context"),
        ],
    )
    def test_its_errors_are_the_attempts(self, configured, context, name, kind, message):
        configured(name)
        outcome = run(context)
        assert outcome.kind is kind
        assert message in outcome.message

    def test_it_is_inside_of_the_transaction(self, configured, context):
        configured("raises")
        entered = []

        class Transaction:
            def run(self, call):
                entered.append(True)
                return call()

        outcome = execution.run(claimed(7, "tests.echo"), context, Transaction())
        assert (outcome.kind, entered) == (Kind.ERROR, [True])

    def test_a_bad_path_fails_the_attempt(self, configured, context):
        configured("missing")
        outcome = run(context)
        assert "ATP['MIDDLEWARE']: 'tests.app.middleware.missing'" in outcome.message

    def test_without_any_nothing_is_in_between(self, configured):
        configured(carriers=())
        assert onion.run(None, lambda: 5) == 5


def statements(call):
    """Return the number of statements of a call, once those are prepared that it executes."""
    for _ in range(THRESHOLD + 2):
        call()
    with CaptureQueriesContext(connection) as captured:
        call()
    return len(captured)


class TestCarrying:
    def test_nothing_is_kept_where_nothing_is_carried(self, configured, db):
        configured()
        assert queue.get(echo.enqueue().uuid).own is None

    def test_an_enqueue_that_carries_takes_no_statement_more(self, configured, db):
        configured()
        without = statements(echo.enqueue)
        tenant.set("esa")
        assert statements(echo.enqueue) == without

    def test_language_and_time_zone(self, configured, db):
        configured()
        with translation.override("de"), timezone.override(ZoneInfo("Europe/Vienna")):
            made = echo.enqueue()
        assert queue.get(made.uuid).carried == {"language": "de", "time_zone": "Europe/Vienna"}

    def test_a_fixed_offset(self, configured, context):
        configured()
        with timezone.override(fixed(timedelta(hours=2))):
            values = carrying.saved()
        assert answer(run(context, "tests.carried", **values))[1] == "+0200"

    def test_they_are_restored_and_put_back(self, configured, context):
        configured()
        values = {"language": "de", "time_zone": "Europe/Vienna", "tenant": 7}
        assert answer(run(context, "tests.carried", **values)) == ["de", "Europe/Vienna", 7]
        assert translation.get_language() == "en-us"
        assert timezone.get_current_timezone_name() == "UTC"

    def test_what_no_carrier_is_listed_for_is_left_alone(self, configured, context):
        configured(carriers=OF_ATP)
        assert answer(run(context, "tests.carried", tenant="esa"))[2] is None

    def test_an_error_of_a_carrier_is_the_attempts(self, configured, context):
        configured()
        outcome = run(context, "tests.carried", tenant="closed")
        assert outcome.kind is Kind.ERROR
        assert "there is no such tenant any more" in outcome.message

    def test_a_time_zone_that_is_not_here(self, configured, context):
        configured()
        assert "No time zone found" in run(context, "tests.carried", time_zone="Moon/Sea").message

    def test_many_carry_the_same(self, configured, db):
        configured()
        tenant.set({"id": 7})
        made = echo.enqueue_many([{}, {}])
        assert [queue.get(each.uuid).carried for each in made] == [{"tenant": {"id": 7}}] * 2

    @pytest.mark.parametrize(
        "value",
        [
            *(object(), (1, 2), {1: 2}, float("nan"), "a\x00b", "a\ud800b", b"x"),
            *({"a": [1e300]}, -0.0, Unequal()),
        ],
    )
    def test_what_would_not_come_back_is_refused(self, configured, db, value):
        configured()
        tenant.set(value)
        with pytest.raises(NotSerializable, match="The carrier 'tenant' saved"):
            echo.enqueue()
        assert queue.size() == 0

    def test_there_is_a_limit(self, configured, db):
        configured()
        tenant.set("x" * 5000)
        with pytest.raises(TooLarge, match="4096 are allowed"):
            echo.enqueue()

    def test_what_has_a_backslash_is_carried(self, configured, db):
        configured()
        tenant.set("a\\u0000b")
        assert queue.get(echo.enqueue().uuid).carried == {"tenant": "a\\u0000b"}


class TestSurfaces:
    @pytest.fixture
    def made(self, configured, db):
        configured()
        tenant.set("esa")
        return echo.enqueue()

    def test_the_api_tells_it_with_the_inputs(self, made):
        api = Api(User.objects.create_superuser("root", password="secret"))
        answer = api.get(f"instances/{made.uuid}/inputs").json()
        assert answer["carried"] == {"tenant": "esa"}

    def test_the_shell_shows_it(self, made):
        out = io.StringIO()
        call_command("atp", "show", str(made.uuid), stdout=out)
        assert "carried\n  tenant" in out.getvalue()

    def test_the_page_shows_it_to_whoever_may_see_inputs(self, made, client):
        user = User.objects.create_user("ann", password="secret")
        client.force_login(user)
        allowed = Permission.objects.filter(content_type__app_label="atp")
        user.user_permissions.set(allowed.filter(codename="view_instance"))
        page = f"/atp/instances/{made.uuid}/"
        assert "Carried from its enqueue" not in client.get(page).content.decode()
        user.user_permissions.set(allowed.filter(codename__in=["view_instance", "view_inputs"]))
        assert "Carried from its enqueue" in client.get(page).content.decode()


class TestSettings:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"MIDDLEWARE": ["shop.missing"]}, "ATP['MIDDLEWARE']: 'shop.missing': No module"),
            ({"MIDDLEWARE": ["timing"]}, "ATP['MIDDLEWARE']: 'timing':"),
            ({"MIDDLEWARE": [5]}, "ATP['MIDDLEWARE'] must be a list of dotted paths; 5 is none."),
            ({"MIDDLEWARE": ["math.pi"]}, "must be a function or a class that takes run"),
            (
                {"MIDDLEWARE": ["tests.app.middleware.is_a_coroutine"]},
                "must be a function or a class that takes run",
            ),
            ({"CARRIERS": ["tests.app.middleware.missing"]}, "ATP['CARRIERS']:"),
            ({"CARRIERS": ["tests.app.middleware.NotAClass"]}, "is no carrier"),
            ({"CARRIERS": ["tests.app.middleware.outer"]}, "is no carrier"),
            ({"CARRIERS": ["tests.app.middleware.Unnamed"]}, "the name of"),
            ({"CARRIERS": ["tests.app.middleware.Unmade"]}, "cannot be made"),
            (
                {"CARRIERS": [TENANT, "tests.app.middleware.SameName"]},
                "and Tenant have one name, 'tenant'",
            ),
        ],
    )
    def test_what_cannot_be_used_is_an_error_of_the_check(self, settings, changes, message):
        settings.ATP = settings.ATP | changes
        [found] = [each for each in run_checks() if each.id == "atp.E020"]
        assert message in found.msg

    @pytest.mark.parametrize("name", ["MIDDLEWARE", "CARRIERS"])
    def test_they_are_lists(self, settings, name):
        settings.ATP = settings.ATP | {name: "shop.timing"}
        [found] = [each for each in run_checks() if each.id == "atp.E001"]
        assert f"ATP['{name}'] must be list or tuple, not 'shop.timing'" in found.msg

    def test_an_enqueue_names_a_bad_carrier(self, configured, db):
        configured(carriers=["shop.missing"])
        with pytest.raises(ImproperlyConfigured, match=r"ATP\['CARRIERS'\]: 'shop.missing'"):
            echo.enqueue()


def test_nothing_is_asked_where_nothing_is_set(configured, monkeypatch):
    configured(carriers=())
    monkeypatch.setattr(carrying, "carriers", partial(pytest.fail, "carriers were looked for"))
    assert carrying.saved() is None
    with carrying.restored(None):
        pass
