"""The pages of tailers: progress, cursors and who has set them."""

import pytest

from atp import queue
from atp.sources import CursorMove, Note
from atp.store.values import Settled

from ..populated import MARKUP
from ..store.world import registration
from .pages import check_page


@pytest.fixture
def tailer(full):
    return full.tailer()


TAILERS, TAILER = "/atp/tailers/", "/atp/tailers/tests.tailer/"
LINK = f'<a href="{TAILER}">tests.tailer</a>'


def test_the_tailer_list_shows_how_far_each_is_behind(full, operator):
    check_page(operator.get(TAILERS), "No tailer has read its source.")
    full.tailer()
    behind = '<td data-label="Behind" class="number">3</td>'
    check_page(operator.get(TAILERS), LINK, behind, lacks=[MARKUP])
    check_page(operator.get("/atp/tailers/tests.tailor/"), "Did you mean", status=404)


def test_a_tailer_page_shows_cursors_losses_and_skipped_records(full, tailer, operator):
    queue.seek("tests.tailer", shard="a", position="5", by="user ann via shell")
    cursor = '<td data-label="Position">5</td>', "user ann via shell"
    check_page(operator.get(TAILER), *cursor, lacks=[MARKUP])
    lost = Note(kind="lost", count=17, message="17 entries were removed unread")
    move = CursorMove(shard="b", before=None, after="9", notes=[lost])
    store = full.world.store.tailers
    store.advance("tests.tailer", [move], Settled(records=0))
    odd = Note(kind="skipped", count=2, message=f"2 names are odd: {MARKUP}")
    store.look("tests.tailer", source="", behind=0, notes=[odd])
    shown = check_page(operator.get(TAILER), "17 in 1 gap", lost.message, lacks=[MARKUP])
    assert shown.count("2 names are odd") == 2
    for name, count in (("Lost", 17), ("Skipped", 2)):
        cell = f'<td data-label="{name}" class="number">{count}</td>'
        check_page(operator.get(TAILERS), cell)


def test_the_page_of_each_type_of_a_tailer_links_to_the_tailer(full, tailer, operator):
    for identifier in ("tests.tailer", "tests.tailer.rejected"):
        full.world.store.types.register([registration(identifier)])
        check_page(operator.get(f"/atp/types/{identifier}/"), LINK)
    check_page(operator.get("/atp/types/tests.echo/"), lacks=["<dt>Tailer</dt>"])
