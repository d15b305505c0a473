"""The pages of tailers: progress, cursors and who has set them."""

import pytest

from atp import queue
from atp.sources import CursorMove, Note
from atp.store.values import Settled

from ..populated import MARKUP
from ..store.world import registration


@pytest.fixture
def tailer(full):
    return full.tailer()


def test_the_tailer_list_shows_how_far_each_is_behind(full, operator):
    assert "No tailer has read its source." in operator.get("/atp/tailers/").content.decode()
    full.tailer()
    text = operator.get("/atp/tailers/").content.decode()
    assert '<a href="/atp/tailers/tests.tailer/">tests.tailer</a>' in text
    assert '<td data-label="Behind" class="number">3</td>' in text
    assert MARKUP not in text
    answer = operator.get("/atp/tailers/tests.tailor/")
    assert answer.status_code == 404
    assert "Did you mean" in answer.content.decode()


def test_a_tailer_page_shows_cursors_losses_and_skipped_records(full, tailer, operator):
    queue.seek("tests.tailer", shard="a", position="5", by="user ann via shell")
    text = operator.get("/atp/tailers/tests.tailer/").content.decode()
    assert '<td data-label="Position">5</td>' in text
    assert "user ann via shell" in text
    assert MARKUP not in text
    lost = Note(kind="lost", count=17, message="17 entries were removed unread")
    move = CursorMove(shard="b", before=None, after="9", notes=[lost])
    store = full.world.store.tailers
    store.advance("tests.tailer", [move], Settled(records=0))
    odd = Note(kind="skipped", count=2, message=f"2 names are odd: {MARKUP}")
    store.look("tests.tailer", source="", behind=0, notes=[odd])
    text = operator.get("/atp/tailers/tests.tailer/").content.decode()
    assert "17 in 1 gap" in text
    assert "17 entries were removed unread" in text
    assert text.count("2 names are odd") == 2
    assert MARKUP not in text
    text = operator.get("/atp/tailers/").content.decode()
    assert '<td data-label="Lost" class="number">17</td>' in text
    assert '<td data-label="Skipped" class="number">2</td>' in text


def test_the_page_of_each_type_of_a_tailer_links_to_the_tailer(full, tailer, operator):
    for identifier in ("tests.tailer", "tests.tailer.rejected"):
        full.world.store.types.register([registration(identifier)])
        text = operator.get(f"/atp/types/{identifier}/").content.decode()
        assert '<a href="/atp/tailers/tests.tailer/">tests.tailer</a>' in text
    assert "<dt>Tailer</dt>" not in operator.get("/atp/types/tests.echo/").content.decode()
