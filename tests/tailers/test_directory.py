"""The source Directory: each file once, in place (G18)."""

import logging
import os
from datetime import timedelta

import pytest
from django.utils import timezone

from atp.exceptions import QueueFull
from atp.models import Cursor, Tailer
from atp.rows.tailers.cursor import MAX_SHARD
from atp.sources import Directory
from atp.store import get_store
from atp.tailers.reading import MEMORY

from .test_reading import data


@pytest.fixture
def drops(tmp_path):
    """The directory; ``drops(name)`` writes a file in it."""
    folder = tmp_path / "drops"
    folder.mkdir()

    def write(name, text="a"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    write.folder = folder
    return write


@pytest.fixture
def tail(drops, declare, work):
    """Declare a tailer of the directory, whose calls have the paths of the files."""

    def make(**given):
        source = Directory(drops.folder, **{"quiet": 0, **given})
        return declare(source, lambda record: work.call(data=record.shard))

    return make


def test_each_file_is_enqueued_once(drops, tail, read):
    """G18."""
    made = tail()
    drops("b.tif")
    assert read(made)["enqueued"] == 1
    drops("a.tif")
    assert read(made)["enqueued"] == 1
    assert read(made) == {"records": 0, "enqueued": 0, "rejected": 0, "behind": 0}
    assert data() == ["b.tif", "a.tif"]


def test_the_record_tells_the_path_of_the_file(drops, declare, read, work):
    path = drops("b.tif", "text")
    seen = []
    made = declare(Directory(drops.folder, quiet=0), lambda record: seen.append(record))
    read(made)
    assert seen[0].path == path
    assert seen[0].time.timestamp() == pytest.approx(path.stat().st_mtime)


def test_a_file_that_was_changed_is_a_new_record(drops, tail, read):
    made = tail()
    drops("a.tif")
    read(made)
    drops("a.tif", "longer")
    assert read(made)["enqueued"] == 1
    assert data() == ["a.tif", "a.tif"]
    assert Cursor.objects.count() == 1


def test_a_file_that_somebody_writes_still_waits(drops, tail, read):
    made = tail(quiet=3600)
    drops("a.tif")
    assert read(made) == {"records": 0, "enqueued": 0, "rejected": 0, "behind": 1}


def test_only_files_that_match_are_records(drops, tail, read, tmp_path):
    for name in ("a.tif", "a.txt", ".b.tif", "below/c.tif"):
        drops(name)
    (drops.folder / "d.tif").symlink_to(drops.folder / "a.tif")
    (drops.folder / "e.tif").mkdir()
    read(tail(pattern="*.tif"))
    assert data() == ["a.tif"]


def test_the_directories_below_may_be_looked_through(drops, tail, read):
    for name in ("a.tif", "x/y/b.tif", ".x/c.tif"):
        drops(name)
    read(tail(pattern="*.tif", recursive=True))
    assert sorted(data()) == ["a.tif", "x/y/b.tif"]


def test_a_folder_is_one_record_whatever_changes_in_it(drops, tail, read):
    made = tail(pattern="*.SAFE", folders=True)
    drops("S2A.SAFE/a.xml")
    drops("S2B/a.xml")
    assert read(made)["enqueued"] == 1
    drops("S2A.SAFE/b.xml")
    assert read(made)["enqueued"] == 0
    assert data() == ["S2A.SAFE"]


def test_a_folder_waits_for_what_is_written_in_it(drops, tail, read):
    drops("S2A.SAFE/x/a.xml")
    old = timezone.now().timestamp() - 7200
    for path in (drops.folder / "S2A.SAFE", drops.folder / "S2A.SAFE" / "x"):
        os.utime(path, (old, old))
    assert read(tail(folders=True, quiet=3600))["behind"] == 1


def test_a_name_that_cannot_be_kept_stays_and_the_log_names_it(drops, tail, read):
    """G13."""
    with open(os.path.join(os.fsencode(drops.folder), b"\xff.tif"), "wb"):
        pass
    long = "/".join(["x" * 200] * 3)
    assert len(long) > MAX_SHARD
    drops(long)
    found = read(tail(recursive=True))
    assert (found["records"], found["behind"]) == (0, 2)
    [(_, text)] = read.context.messages
    assert "2 names cannot be kept" in text
    assert "udcff.tif" in text


def test_a_directory_that_is_away_forgets_nothing(drops, tail, read):
    """As when its disk is not mounted: an error, or an empty directory, and later all is back."""
    made = tail()
    drops("a.tif")
    read(made)
    away = drops.folder.rename(drops.folder.with_name("away"))
    with pytest.raises(FileNotFoundError):
        read(made)
    drops.folder.mkdir()
    assert read(made)["behind"] == 0
    assert Cursor.objects.get().missing_since is not None
    drops.folder.rmdir()
    away.rename(drops.folder)
    assert read(made)["enqueued"] == 0
    assert Cursor.objects.get().missing_since is None


def test_a_file_that_is_gone_for_long_is_forgotten(drops, tail, read):
    made = tail()
    path = drops("a.tif")
    read(made)
    path.unlink()
    read(made)
    since = timezone.now() - MEMORY - timedelta(minutes=1)
    Cursor.objects.update(missing_since=since)
    read(made)
    assert not Cursor.objects.exists()


def test_what_was_put_aside_has_its_path_again(drops, declare, atp, read):
    path = drops("a.tif")
    seen = []

    def function(record):
        seen.append(record)
        raise KeyError("cloud")

    made = declare(Directory(drops.folder, quiet=0), function)
    read(made)
    atp.drain(made.rejected, raises=False)
    first, again = seen
    assert again == first
    assert again.path == path


def test_it_says_where_it_reads(drops, tail, read):
    read(tail(pattern="*.tif"))
    assert Tailer.objects.get().source == f"{drops.folder}/*.tif"


def test_what_cannot_be_read_keeps_nothing_else(drops, tail, read, monkeypatch):
    """As lost+found below the root of a mount."""
    drops("a.tif")
    drops("lost+found/b.tif")
    scan = os.scandir

    def refuse(folder):
        if str(folder).endswith("lost+found"):
            raise PermissionError(13, "Permission denied")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    assert read(tail(recursive=True))["enqueued"] == 1
    assert data() == ["a.tif"]
    assert read.context.messages == [(logging.WARNING, "1 cannot be read: 'lost+found'")]


def test_a_time_that_no_calendar_has_is_no_error(drops, tail, read):
    os.utime(drops("a.tif"), (10**12, 10**12))
    assert read(tail())["enqueued"] == 1


def test_what_waits_in_a_full_queue_counts_as_behind(drops, tail, read, monkeypatch):
    for name in ("a.tif", "b.tif", "c.tif"):
        drops(name)
    made = tail()

    def refuse(calls):
        raise QueueFull("too many wait")

    monkeypatch.setattr("atp.tailers.reading.enqueue_prepared", refuse)
    assert read(made)["behind"] == 3


@pytest.mark.parametrize("path", ["/etc/shadow", "../a.tif", "x/../../a.tif"])
def test_a_path_elsewhere_is_refused(tmp_path, path):
    """G14: inputs may be made by hand."""
    with pytest.raises(ValueError, match="is no path below"):
        Directory(tmp_path).unpack({"path": path, "position": "1", "time": None})


def test_an_operator_has_a_file_read_again(drops, tail, read):
    made = tail()
    drops("a.tif")
    read(made)
    get_store().tailers.seek("tests.tailer", "a.tif", None)
    assert read(made)["enqueued"] == 1
