"""Tests of :mod:`tests.selection`: every test is run somewhere, and once where that is enough."""

import sys
from types import SimpleNamespace

import pytest

from . import environment, selection
from .selection import NoProcesses, Sharing


class Item:
    """What is asked of a test of pytest."""

    def __init__(self, path, name="test_it", fixtures=(), marks=(), names=(), line=0, scope="x"):
        self.path = environment.ROOT / path
        self.nodeid = f"{path}::{name}"
        self.fixturenames = list(fixtures)
        self.module = SimpleNamespace(**dict.fromkeys(names))
        self.location = path, line, name
        self._marks = marks
        scopes = {"fixture": [SimpleNamespace(scope=scope)]}
        self._fixtureinfo = SimpleNamespace(name2fixturedefs=scopes)

    def get_closest_marker(self, name):
        return name in self._marks or None


PAGES = "tests/views/test_pages.py"
UNIT = Item("tests/test_codec.py")
VERB = Item("tests/test_queue.py", fixtures=["db"], line=5)
BY_MARK = Item("tests/test_queue.py", "test_by_mark", marks=["django_db"], line=9)
SMOKE = Item(PAGES, "test_first", fixtures=["db"], line=5)
PAGE = Item(PAGES, "test_second", fixtures=["db"], line=9)
PURE_PAGE = Item(PAGES, "test_pure", line=1)
DAEMON = Item("tests/daemon/test_kills.py", fixtures=["atpd", "transactional_db"])
PAUSE = Item("tests/daemon/test_pause.py", "test_first", fixtures=["transactional_db"], line=5)
PAUSE_ON = Item("tests/daemon/test_pause.py", "test_on", fixtures=["transactional_db"], line=9)
OF_ONE = Item("tests/store/test_listener.py", marks=["skipif"])
OF_EACH = Item("tests/store/test_choice.py", names=["connection"])
LONG = Item("tests/test_many.py", marks=["long"])
MARKED = Item("tests/web/test_a.py", fixtures=["db"], marks=["each_database"], line=20)
BESIDE_MARKED = Item("tests/web/test_a.py", "test_other", fixtures=["db"])
ALL = [
    *(UNIT, VERB, BY_MARK, SMOKE, PAGE, PURE_PAGE, DAEMON, OF_ONE, OF_EACH, LONG),
    *(PAUSE, PAUSE_ON, MARKED, BESIDE_MARKED),
]


def selected(monkeypatch, kind="sqlite", beside=None, quick=False, short=False):
    monkeypatch.setattr(environment, "kind", lambda: kind)
    told = []
    config = SimpleNamespace(
        option=SimpleNamespace(beside=beside, quick=quick, short=short),
        hook=SimpleNamespace(pytest_deselected=lambda items: told.extend(items)),
    )
    items = list(ALL)
    lines = selection.select(config, items)
    assert sorted(map(id, items + told)) == sorted(map(id, ALL))
    return items, lines


def test_a_run_that_stands_alone_leaves_nothing_out(monkeypatch):
    assert selected(monkeypatch) == (ALL, [])


def test_each_test_is_run_on_one_database_or_on_both(monkeypatch):
    on_sqlite, lines = selected(monkeypatch, "sqlite", beside="postgres")
    on_postgres, _ = selected(monkeypatch, "postgres", beside="sqlite")
    assert [item for item in ALL if item not in on_postgres] == [
        *(UNIT, PAGE, PURE_PAGE, LONG, BESIDE_MARKED)
    ]
    assert [item for item in ALL if item not in on_sqlite] == [BY_MARK, PAUSE_ON]
    assert lines == ["2 tests left to the run on postgres"]


def test_a_short_run_leaves_out_what_takes_long(monkeypatch):
    items, lines = selected(monkeypatch, short=True)
    assert [item for item in ALL if item not in items] == [LONG]
    assert lines == ["1 tests left to a run with --all, as they take long"]


def test_a_quick_run_starts_no_daemon(monkeypatch):
    items, lines = selected(monkeypatch, quick=True)
    assert [item for item in ALL if item not in items] == [DAEMON]
    assert lines == ["1 tests left out, as they start processes"]


def test_a_test_of_a_quick_run_that_starts_a_process_is_skipped():
    plugin = NoProcesses()
    watched = plugin.pytest_runtest_call(UNIT)
    next(watched)
    with pytest.raises(pytest.skip.Exception):
        sys.audit("subprocess.Popen", "true", [], None, None)
    watched.close()
    sys.audit("subprocess.Popen", "true", [], None, None)


@pytest.mark.parametrize(("scope", "units"), [("function", 2), ("module", 1), ("package", 1)])
def test_what_is_shared_is_taken_once(tmp_path, scope, units):
    """Tests that need a fixture of their module are all taken by one process."""
    items = [Item(PAGES, name, scope=scope) for name in ("test_a", "test_b")]
    one, other = Sharing(tmp_path / "taken"), Sharing(tmp_path / "taken")
    assert one._takes(items[0])
    assert not other._takes(items[0])
    assert other._takes(items[1]) == (units == 2)
    assert one._takes(items[1]) == (units == 1)
    assert len(list((tmp_path / "taken").iterdir())) == units
