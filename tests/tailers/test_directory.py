"""The source Directory enqueues each file once and leaves it in place (G18)."""

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

from atp.models import Cursor
from atp.sources import Directory, FileRecord, FileRefused, directory, open_below
from atp.tailers.models import MAX_SHARD
from atp.tailers.tailer import MEMORY

from .test_reading import data

# How often a folder is replaced while a directory is looked at; in a usual run, less often.
SWAPS, FEW_SWAPS = 500, 100


@pytest.fixture
def drops(tmp_path):
    """The directory of the tailer; ``drops(name)`` writes a file there."""

    def write(name, text="a"):
        path = write.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    write.folder = tmp_path / "drops"
    write.folder.mkdir()
    return write


@pytest.fixture
def tail(drops, declare, work):
    """A function that declares a tailer of the directory; its calls have the paths of the files."""

    def make(**given):
        source = Directory(drops.folder, **{"quiet": 0, **given})
        return declare(source, lambda record: work.call(data=record.shard))

    return make


HAS_BIRTHS = directory.birth(os.open("/", os.O_RDONLY)) != "?"


def overwrite(path, text, time):
    """Write into the existing file."""
    path.write_text(text)
    os.utime(path, (time, time))


def replace(path, text, time):
    new = path.with_name(".new")
    overwrite(new, text, time)
    new.rename(path)


def remove_and_write(path, text, time):
    """Remove the file and write a new one, which might get the same inode number."""
    path.unlink()
    overwrite(path, text, time)


@pytest.mark.parametrize("deliver", [overwrite, replace, remove_and_write])
def test_a_redelivered_file_with_its_old_time_and_size_is_a_new_record(drops, tail, read, deliver):
    """cp -p, rsync -t and tar keep the time. The handler might have removed the first file."""
    made = tail()
    overwrite(drops("a.tif"), "1", 1.7e9)
    assert read(made)["enqueued"] == 1
    for text in "23" if deliver is overwrite or not HAS_BIRTHS else "233":
        deliver(drops.folder / "a.tif", text, 1.7e9)
        assert read(made)["enqueued"] == 1
        assert read(made)["enqueued"] == 0
    assert Cursor.objects.count() == 1


def test_changing_the_mode_or_links_of_a_file_makes_no_new_record(drops, tail, read, tmp_path):
    """Nor does a position that an older release has stored, after an update of ATP."""
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
    status = path.stat()
    overwrite(path, "b", status.st_mtime)
    assert read(made)["enqueued"] == 1
    Cursor.objects.update(position=f"{status.st_size}-{path.stat().st_mtime_ns}")
    assert read(made)["records"] == 0
    overwrite(path, "c", status.st_mtime)
    os.utime(path, ns=(0, status.st_mtime_ns))
    assert read(made)["enqueued"] == 1


def test_what_was_recently_written_is_not_read_yet(drops, tail, read):
    """So does one that changes between listing and reading."""
    drops("a.tif")
    file = drops("S2A.SAFE/x/a.xml")
    old = timezone.now().timestamp() - 7200
    for above in (file.parent, file.parent.parent):
        os.utime(above, (old, old))
    for folders in (False, True):
        made = tail(folders=folders, quiet=3600)
        assert read(made) == {"records": 0, "enqueued": 0, "rejected": 0, "behind": 1}
    made = tail()
    with made.source.open({}) as reader:
        drops("a.tif", "longer")
        assert list(reader.read(500)) == []
        assert reader.behind() == 1
    assert read(made)["enqueued"] == 1


@pytest.mark.parametrize(
    ("recursive", "found"), [(False, ["a.tif"]), (True, ["a.tif", "below/y/c.tif"])]
)
def test_only_matching_files_are_records(drops, tail, read, recursive, found):
    for name in ("a.tif", "a.txt", ".b.tif", "below/y/c.tif", ".below/c.tif"):
        drops(name)
    (drops.folder / "d.tif").symlink_to(drops.folder / "a.tif")
    (drops.folder / "e.tif").mkdir()
    read(tail(pattern="*.tif", recursive=recursive))
    assert sorted(data()) == found


def test_a_folder_is_one_record_until_another_replaces_it(drops, tail, read):
    made = tail(pattern="*.SAFE", folders=True)
    drops("S2A.SAFE/a.xml")
    drops("S2B/a.xml")
    assert read(made)["enqueued"] == 1
    drops("S2A.SAFE/b.xml")
    assert read(made)["enqueued"] == 0
    assert data() == ["S2A.SAFE"]
    for _ in range(3):  # the file system may give out the inode number again
        shutil.rmtree(drops.folder / "S2A.SAFE")
        drops("S2A.SAFE/a.xml")
        assert read(made)["enqueued"] == 1


@pytest.mark.parametrize("folders", [False, True])
def test_special_files_are_skipped_and_mentioned_in_the_log(
    drops, tail, read, monkeypatch, folders
):
    """Opening a pipe would wait for ever."""
    drops("a.tif/b" if folders else "a.tif")
    monkeypatch.chdir(drops.folder)  # the path of a socket is short
    for name in ("tif", "txt"):
        os.mkfifo(f"c.{name}")
        Path(f"d.{name}").symlink_to("/dev/null")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"e.{name}")
    read(tail(pattern="*.tif", folders=folders))
    assert data() == ["a.tif"]
    [(level, told)] = read.context.messages
    assert level == logging.WARNING
    assert told.startswith("3 are symbolic links, pipes, sockets or devices: ")


@pytest.mark.parametrize("folders", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_folder_replaced_by_a_link_while_listing_is_not_followed(
    drops, tmp_path, request, folders
):
    """A user who can write into the directory must not gain access to other files (G14)."""
    name = "secret/b" if folders else "secret"
    secret = tmp_path / "outside" / name
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    for number in range(20):
        drops(f"x/{number}/file")
        drops(f"y/{number}/file")

    def swap():
        below, away = drops.folder / "x", drops.folder / ".x"
        for _ in range(FEW_SWAPS if request.config.option.short else SWAPS):
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


def test_the_file_of_a_record_can_be_opened(drops, declare, read):
    path = drops("x/b.tif", "text")
    seen = []

    def function(record):
        with record.open() as file:
            seen.append((file.read(), record.path, record.time.timestamp()))

    read(declare(Directory(drops.folder, quiet=0, recursive=True), function))
    assert seen == [(b"text", path, pytest.approx(path.stat().st_mtime))]
    with FileRecord(path=path).open() as file:
        assert file.read() == b"text"
    for given in (path, str(path), "x/b.tif"):
        with open_below(drops.folder, given) as file:
            assert file.read() == b"text"


# What has taken the place of a file.
OTHERS = {
    "other": lambda path: remove_and_write(path, "none", path.stat().st_mtime),
    "link": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
    "link above": lambda path: path.parent.symlink_to(path.parent.rename(f"{path.parent}-away")),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_file_replaced_by_something_else_is_not_opened(drops, other):
    """This holds for the record, and for a handler that has only the path (G14)."""
    path = drops("x/b.tif", "text")
    with Directory(drops.folder, quiet=0, recursive=True).open({}) as reader:
        [record] = reader.read(500)
    OTHERS[other](path)
    with pytest.raises(FileRefused):
        record.open()
    if other != "other":  # of the path alone nobody knows which file it was
        with pytest.raises(FileRefused):
            open_below(drops.folder, path)


def test_no_path_leads_outside_the_directory(drops):
    """Paths can come from a handler, or from inputs that somebody has written (G14)."""
    for path in ("/etc/passwd", "../a.tif", "x/../../a.tif", "", "."):
        with pytest.raises(ValueError, match=r"not (in the sub|a )path"):
            open_below(drops.folder, path)
        if len(path) > 1:
            with pytest.raises(ValueError, match="is not a path below"):
                Directory(drops.folder).unpack({"path": path, "position": "1", "time": None})


def test_unreadable_folders_and_unstorable_names_are_logged(drops, tail, read, monkeypatch):
    """They stay, and block no other file. The log contains the escaped name (G13)."""
    drops("b.tif")
    drops("lost+found/b.tif")
    open_folder = directory.open_folder

    def refuse(above, name):
        if name == "lost+found":
            raise PermissionError(13, "Permission denied")
        return open_folder(above, name)

    with monkeypatch.context() as context:
        context.setattr(directory, "open_folder", refuse)
        assert read(tail(recursive=True))["enqueued"] == 1
    assert data() == ["b.tif"]
    assert read.context.messages == [(logging.WARNING, "1 cannot be read: 'lost+found'")]
    shutil.rmtree(drops.folder / "lost+found")
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
    # A time beyond the calendar is no error.
    os.utime(drops("a.tif"), (10**12, 10**12))
    assert read(tail())["enqueued"] == 1


def test_a_missing_directory_keeps_its_cursors_for_a_while(drops, tail, read):
    """If a disk is not mounted, its directory is missing or empty, and later the files are back."""
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
    (drops.folder / "a.tif").unlink()
    read(made)
    Cursor.objects.update(missing_since=timezone.now() - MEMORY - timedelta(minutes=1))
    read(made)
    assert not Cursor.objects.exists()
