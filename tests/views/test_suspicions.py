"""What a scan suspects stands on the overview for as long as it is so (docs/check.md)."""

from tests.app.tasks import echo

from ..store.broken import age, settle


def test_the_overview_says_what_is_wrong_and_what_to_do(world, operator):
    """G2 and G14: nothing is lost, and what is said is escaped."""
    host = world.host("tests.echo")
    settle(host)
    instance = echo.enqueue()
    assert "errors" not in operator.get("/atp/").content.decode()
    age(instance.pk)
    shown = operator.get("/atp/").content.decode()
    assert '<p class="errors">Work of Type &#x27;tests.echo&#x27; has been due for' in shown
    assert "Restart that daemon; manage.py atp check says more." in shown
    host.claim()
    assert "errors" not in operator.get("/atp/").content.decode()
