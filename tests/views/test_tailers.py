"""The pages of tailers: what came out of a source, its cursors, and who has set them."""

import pytest

from atp import queue

from ..populated import MARKUP
from ..store.world import registration


@pytest.fixture
def tailer(full):
    return full.tailer()


def test_the_list_tells_what_is_left(tailer, operator):
    text = operator.get("/atp/tailers/").content.decode()
    assert '<a href="/atp/tailers/tests.tailer/">tests.tailer</a>' in text
    assert '<td data-label="Behind" class="number">3</td>' in text
    assert MARKUP not in text


def test_without_tailers_it_says_so(full, operator):
    assert "No tailer has read its source." in operator.get("/atp/tailers/").content.decode()


def test_a_page_has_the_cursors_and_who_has_set_them(tailer, operator):
    queue.seek("tests.tailer", shard="a", position="5", by="user ann via shell")
    text = operator.get("/atp/tailers/tests.tailer/").content.decode()
    assert '<td data-label="Position">5</td>' in text
    assert "user ann via shell" in text
    assert MARKUP not in text


def test_one_that_is_not_there_is_not_found(tailer, operator):
    answer = operator.get("/atp/tailers/tests.tailor/")
    assert answer.status_code == 404
    assert "Did you mean" in answer.content.decode()


@pytest.mark.parametrize("identifier", ["tests.tailer", "tests.tailer.rejected"])
def test_its_types_lead_to_it(full, tailer, operator, identifier):
    full.world.store.register([registration(identifier)])
    text = operator.get(f"/atp/types/{identifier}/").content.decode()
    assert '<a href="/atp/tailers/tests.tailer/">tests.tailer</a>' in text


def test_other_types_do_not(tailer, operator):
    assert "<dt>Tailer</dt>" not in operator.get("/atp/types/tests.echo/").content.decode()
