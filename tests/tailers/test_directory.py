"""The source Directory: each file once, in place (G18)."""

import logging
import os
import shutil
import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from atp.exceptions import QueueFull
from atp.models import Cursor, Tailer
from atp.rows.tailers.cursor import MAX_SHARD
from atp.sources import Directory, FileRecord, FileRefused, files, open_below
from atp.store import get_store
from atp.tailers.reading import MEMORY

from .test_reading import data

# How often a folder is replaced while a directory is looked at.
SWAPS = 500


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


def overwrite(path, text, time):
    """Write into the file itself."""
    path.write_text(text)
    os.utime(path, (time, time))


def replace(path, text, time):
    new = path.with_name(".new")
    overwrite(new, text, time)
    new.rename(path)


def remove_and_write(path, text, time):
    """The file system may give out the inode number again."""
    path.unlink()
    overwrite(path, text, time)


@pytest.mark.parametrize("deliver", [overwrite, replace, remove_and_write])
def test_a_file_that_comes_again_with_its_old_time_and_size_is_a_new_record(
    drops, tail, read, deliver
):
    """As by cp -p, rsync -t and tar."""
    made = tail()
    overwrite(drops("a.tif"), "1", 1.7e9)
    assert read(made)["enqueued"] == 1
    for text in "234":
        deliver(drops.folder / "a.tif", text, 1.7e9)
        assert read(made)["enqueued"] == 1
        assert read(made)["enqueued"] == 0


@pytest.mark.skipif(files.birth(os.open("/", os.O_RDONLY)) == "?", reason="no times of birth")
@pytest.mark.parametrize("deliver", [replace, remove_and_write])
def test_a_file_that_comes_again_as_it_was_is_a_new_record(drops, tail, read, deliver):
    """Its handler may have removed the first one."""
    made = tail()
    overwrite(drops("a.tif"), "1", 1.7e9)
    read(made)
    deliver(drops.folder / "a.tif", "1", 1.7e9)
    assert read(made)["enqueued"] == 1


def test_a_handler_that_changes_its_mode_or_its_links_makes_no_new_record(
    drops, tail, read, tmp_path
):
    made = tail()
    path = drops("a.tif")
    read(made)
    for change in (
        lambda: path.chmod(0o400),
        lambda: path.chmod(0o400),
        lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.link(path, tmp_path / "done.tif"),
        lambda: os.utime(path, ns=(1, path.stat().st_mtime_ns)),
    ):
        change()
        before = Cursor.objects.get().position
        assert read(made)["records"] == 0
        assert Cursor.objects.get().position != before
        with CaptureQueriesContext(connection) as found:
            read(made)
        assert not any("atp_cursor" in each["sql"] for each in found if "UPDATE" in each["sql"])
    overwrite(path, "b", path.stat().st_mtime)
    assert read(made)["enqueued"] == 1


def test_many_files_whose_mode_changes_are_no_records(drops, tail, read, monkeypatch):
    """Their cursors move in several transactions, and those that are new are read."""
    monkeypatch.setattr("atp.sources.directory.PORTION", 2)
    made = tail()
    paths = [drops(f"{number}.tif") for number in range(7)]
    read(made)
    before = set(Cursor.objects.values_list("position", flat=True))
    for path in paths:
        path.chmod(0o600)
    drops("new.tif")
    assert read(made) == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 0}
    assert before.isdisjoint(Cursor.objects.values_list("position", flat=True))


def test_a_position_of_an_older_version_stands_for_its_file(drops, tail, read):
    """Nothing is read again because positions tell more than they did."""
    made = tail()
    path = drops("a.tif")
    read(made)
    status = path.stat()
    Cursor.objects.update(position=f"{status.st_size}-{status.st_mtime_ns}")
    assert read(made)["records"] == 0
    overwrite(path, "b", status.st_mtime)
    os.utime(path, ns=(0, status.st_mtime_ns))
    assert read(made)["enqueued"] == 1


def test_an_old_position_of_a_folder_stands_for_it(drops, tail, read):
    made = tail(pattern="*.SAFE", folders=True)
    folder = drops("S2A.SAFE/a.xml").parent
    read(made)
    Cursor.objects.update(position=str(folder.stat().st_ino))
    assert read(made)["records"] == 0
    shutil.rmtree(folder)
    drops("S2A.SAFE/a.xml")
    assert read(made)["enqueued"] == 1


def test_a_file_that_is_changed_between_the_look_and_its_turn_waits(drops, tail, read, work):
    made = tail()
    drops("a.tif")
    with made.source.open({}) as reader:
        drops("a.tif", "longer")
        assert list(reader.read(500)) == []
        assert reader.behind() == 1
    assert read(made)["enqueued"] == 1


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


def test_a_folder_that_replaces_another_one_is_a_new_record(drops, tail, read):
    """Though the file system gives out the inode number again."""
    made = tail(pattern="*.SAFE", folders=True)
    for _ in range(5):
        drops("S2A.SAFE/a.xml")
        assert read(made)["enqueued"] == 1
        shutil.rmtree(drops.folder / "S2A.SAFE")


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_link(path):
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_link])
@pytest.mark.parametrize("folders", [False, True])
def test_what_is_neither_a_file_nor_a_folder_is_skipped_and_named(
    drops, tail, read, monkeypatch, make, folders
):
    """To open a pipe would wait for ever."""
    drops("a.tif/b" if folders else "a.tif")
    monkeypatch.chdir(drops.folder)  # the path of a socket is short
    make(Path("c.tif"))
    make(Path("c.txt"))
    read(tail(pattern="*.tif", folders=folders))
    assert data() == ["a.tif"]
    told = "1 are symbolic links, pipes, sockets or devices: 'c.tif'"
    assert read.context.messages == [(logging.WARNING, told)]


@pytest.mark.parametrize("folders", [False, True])
def test_a_folder_that_is_replaced_by_a_link_during_a_look_leads_nowhere_else(
    drops, tmp_path, folders
):
    """G14: whoever writes into the directory must not have a file read that he may not read."""
    name = "secret/b" if folders else "secret"
    secret = tmp_path / "outside" / name
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    for number in range(20):
        drops(f"x/{number}/file")
        drops(f"y/{number}/file")

    def swap():
        below, away = drops.folder / "x", drops.folder / ".x"
        for _ in range(SWAPS):
            below.rename(away)
            below.symlink_to(tmp_path / "outside")
            below.unlink()
            away.rename(below)

    source = Directory(drops.folder, quiet=0, recursive=True, folders=folders)
    found = set()
    swapping = threading.Thread(target=swap)
    swapping.start()
    while swapping.is_alive():
        with source.open({}) as reader:
            found |= {record.shard for record in reader.read(500)}
    swapping.join()
    assert found >= ({"y"} if folders else {"y/0/file"})
    assert not any("secret" in shard for shard in found)


def test_a_record_opens_its_file(drops, declare, read):
    drops("x/b.tif", "text")
    seen = []

    def function(record):
        with record.open() as file:
            seen.append(file.read())

    read(declare(Directory(drops.folder, quiet=0, recursive=True), function))
    assert seen == [b"text"]
    with FileRecord(path=drops.folder / "x" / "b.tif").open() as file:
        assert file.read() == b"text"


def become_other(path):
    remove_and_write(path, "none", path.stat().st_mtime)


def become_link(path):
    path.unlink()
    path.symlink_to("/etc/passwd")


def become_link_above(path):
    path.parent.rename(path.parent.with_name("away"))
    path.parent.symlink_to(path.parent.with_name("away"))


def become_pipe(path):
    path.unlink()
    os.mkfifo(path)


def become_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "become", [become_other, become_link, become_link_above, become_pipe, become_folder]
)
def test_a_record_does_not_open_what_has_taken_the_place_of_its_file(drops, become):
    """G14."""
    path = drops("x/b.tif", "text")
    with Directory(drops.folder, quiet=0, recursive=True).open({}) as reader:
        [record] = reader.read(500)
    become(path)
    with pytest.raises(FileRefused):
        record.open()


@pytest.mark.parametrize("become", [become_link, become_link_above, become_pipe, become_folder])
def test_a_handler_opens_a_regular_file_below_its_directory(drops, become):
    """G14: its inputs have a path alone."""
    path = drops("x/b.tif", "text")
    for given in (path, str(path), "x/b.tif"):
        with open_below(drops.folder, given) as file:
            assert file.read() == b"text"
    become(path)
    with pytest.raises(FileRefused):
        open_below(drops.folder, path)


@pytest.mark.parametrize("path", ["/etc/passwd", "../a.tif", "x/../../a.tif", "", "."])
def test_a_handler_opens_nothing_elsewhere(drops, path):
    """G14."""
    with pytest.raises(ValueError, match=r"not (in the sub|a )path"):
        open_below(drops.folder, path)


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
    open_folder = files.open_folder

    def refuse(above, name):
        if name == "lost+found":
            raise PermissionError(13, "Permission denied")
        return open_folder(above, name)

    monkeypatch.setattr(files, "open_folder", refuse)
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
