"""Who looks after a Type, and its runbook: shown where something of it may have failed."""

import pytest

from atp.models import Type
from atp.states import State

RUNBOOK = '<a href="https://wiki/relief?a=1&amp;b=2" rel="noreferrer">'


@pytest.fixture
def owned(full):
    Type.objects.update(owner="terrain <team>", runbook="https://wiki/relief?a=1&b=2")
    return full


@pytest.mark.parametrize("page", ["types/tests.echo/", "instances/{failed}/", "failures/{error}/"])
def test_owner_and_runbook(owned, operator, page):
    failed, error = owned[State.FAILED].uuid, owned.error().name
    text = operator.get(f"/atp/{page.format(failed=failed, error=error)}").content.decode()
    assert "<dt>Owner</dt><dd>terrain &lt;team&gt;</dd>" in text
    assert RUNBOOK in text


def test_a_type_without_them(full, operator):
    text = operator.get("/atp/types/tests.echo/").content.decode()
    assert "Owner" not in text
    assert "Runbook" not in text


def test_the_downstream_of_a_type(full, operator):
    Type.objects.filter(identifier="tests.echo").update(downstream="tiles")
    text = operator.get("/atp/types/tests.echo/").content.decode()
    assert '<a href="/atp/downstreams/tiles/">tiles</a>' in text
