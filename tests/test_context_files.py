"""Tests of :mod:`atp.authoring.context`: scratch directories, published files, outputs."""

import gzip
import io
import os
import tempfile

import pytest
from django.core.files.base import File
from django.core.files.storage import default_storage

from atp.authoring.output import Output
from atp.authoring.storage import size_of, storage_path
from atp.exceptions import TooLarge

from .helpers import NOBODY


class TestScratch:
    def test_it_is_a_directory_of_the_attempts_own(self, context, tmp_path):
        assert context.scratch is context.scratch
        (context.scratch / "a").write_text("x")
        assert context.scratch.parent == tmp_path
        assert context.scratch.stat().st_mode & 0o777 == 0o700
        context.remove_scratch()
        assert list(tmp_path.iterdir()) == []

    def test_none_is_made_where_none_is_used(self, context, tmp_path):
        context.remove_scratch()
        assert list(tmp_path.iterdir()) == []


class TestScratchThatWasTidiedUp:
    """A program that tidies temporary files removes a folder, and another user makes it anew."""

    @pytest.fixture
    def top(self, tmp_path, settings):
        settings.ATP = {"SCRATCH_DIR": str(tmp_path / "top")}
        (tmp_path / "top").mkdir(mode=0o700)
        return tmp_path / "top"

    @pytest.fixture
    def own(self, context, top):
        """The context of an attempt of worker 0 of a daemon, and the daemon's folder."""
        context._scratch_root = top / "atp-scratch-abc" / "worker-0"
        return context

    def test_it_is_made_anew(self, own, top):
        top.rmdir()
        scratch = own.scratch
        assert scratch.parent == top / "atp-scratch-abc" / "worker-0"
        assert {each.stat().st_mode & 0o777 for each in (scratch, *scratch.parents[:2])} == {0o700}

    @pytest.mark.parametrize("level", ["atp-scratch-abc", "atp-scratch-abc/worker-0"])
    @pytest.mark.parametrize("how", ["link", "of all", "of the group", "of another", "file"])
    def test_what_a_stranger_has_made_is_not_used(self, own, said, top, tmp_path, level, how):
        folder = top / level
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        if how == "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "elsewhere")
        elif how == "file":
            folder.touch()
        else:
            folder.mkdir()
            folder.chmod({"of all": 0o707, "of the group": 0o770, "of another": 0o755}[how])
        if how == "of another":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder to somebody else")
            os.chown(folder, NOBODY, NOBODY)
        before = {each for each in tmp_path.rglob("*") if folder in each.parents}
        scratch = own.scratch
        (scratch / "file").write_text("mine")
        assert folder not in scratch.resolve().parents
        assert tmp_path / "elsewhere" not in scratch.resolve().parents
        assert scratch.parent.parent == top
        assert scratch.parent.stat().st_mode & 0o777 == 0o700
        assert {each for each in tmp_path.rglob("*") if folder in each.parents} == before
        own.say_all()
        assert "is not this user's alone" in str(said)
        own.remove_scratch()
        assert not scratch.parent.exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
    def test_nor_the_whole_folder_of_scratch_directories(self, own, top, tmp_path):
        tmp_path.chmod(0o1777)
        os.chown(top, NOBODY, NOBODY)
        assert top not in own.scratch.parents
        assert list(top.iterdir()) == []
        own.remove_scratch()
        assert list(tmp_path.iterdir()) == [top]


class TestPublish:
    """Result files go into Django's storage, and are described."""

    @pytest.mark.parametrize("kind", ["path", "text path", "bytes", "file", "stream"])
    def test_every_kind_of_file(self, context, said, media, tmp_path, kind):
        path = tmp_path / "a.png"
        path.write_bytes(b"\x89PNG")
        with path.open("rb") as opened:
            given, name = {
                "path": (path, None),
                "text path": (str(path), None),
                "bytes": (b"\x89PNG", "a.png"),
                "file": (opened, None),
                "stream": (io.BytesIO(b"\x89PNG"), "a.png"),
            }[kind]
            description = context.publish(given, name)
        assert description == {
            "name": "a.png",
            "path": storage_path(context.uuid, 3, "a.png"),
            "content_type": "image/png",
            "size": 4,
            "attempt": 3,
        }
        assert said == [("file", description)]
        with default_storage.open(description["path"]) as stored:
            assert stored.read() == b"\x89PNG"

    @pytest.mark.parametrize("kind", ["not flushed", "compressed", "a pipe"])
    def test_the_size_is_that_of_what_is_stored(self, context, media, tmp_path, kind):
        if kind == "not flushed":
            opened = tempfile.TemporaryFile()
            opened.write(b"x" * 100)
        elif kind == "compressed":
            (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 10_000))
            opened = gzip.open(tmp_path / "a.gz")
        else:
            end, begin = os.pipe()
            os.write(begin, b"abc")
            os.close(begin)
            opened = os.fdopen(end, "rb")
        with opened:
            told = context.publish(opened, "a.bin")
        with default_storage.open(told["path"]) as stored:
            assert told["size"] == len(stored.read()) > 0

    def test_it_is_stored_from_its_beginning(self):
        """By storages too that read where the file stands."""
        opened = File(io.BytesIO(b"abc"))
        assert (size_of(opened), opened.read()) == (3, b"abc")

    def test_an_attempt_does_not_overwrite_another(self, context, media):
        first, second = context.publish(b"1", "a"), context.publish(b"2", "a")
        assert first["path"] != second["path"]
        assert first["name"] == second["name"] == "a"

    def test_not_without_end(self, context, said, media, settings):
        """G5."""
        settings.ATP = {**settings.ATP, "MAX_FILES": 2}
        context.publish(b"x", "a")
        context.publish(b"x", "a")
        with pytest.raises(TooLarge, match="2 files"):
            context.publish(b"x", "a")
        assert len(said) == 2

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "ä b?.png"])
    def test_a_name_does_not_lead_out_of_the_instances_folder(self, context, media, name):
        """G14."""
        path = context.publish(b"x", name)["path"]
        assert path.startswith(f"atp/{context.uuid}/3-")
        assert ".." not in path.split("/")
        assert path.count("/") == 2

    @pytest.mark.parametrize("name", [None, ""])
    def test_what_has_no_name_needs_one(self, context, media, name):
        with pytest.raises(ValueError, match="name"):
            context.publish(b"x", name)
        with pytest.raises(ValueError, match="name"):
            context.publish(io.BytesIO(b"x"), name)

    def test_a_content_type(self, context, media):
        assert context.publish(b"x", "a")["content_type"] == "application/octet-stream"
        assert context.publish(b"x", "a", content_type="x/y")["content_type"] == "x/y"


class TestOutput:
    @pytest.mark.parametrize(
        ("content", "content_type"),
        [("text", ""), (b"x", "image/png"), ("<p>", "text/html; charset=utf-8")],
    )
    def test_text_and_bytes(self, content, content_type):
        assert Output(content, content_type).content == content

    @pytest.mark.parametrize("content", [None, 5, {"a": 1}])
    def test_nothing_else(self, content):
        with pytest.raises(TypeError, match="text or bytes"):
            Output(content)

    @pytest.mark.parametrize(
        "content_type",
        [
            "png",
            "image/",
            "/png",
            "a b/c",
            "ä/b",
            "text/html\nx",
            "text/html; a=b\r\nSet-Cookie: c=d",
            "text/html; a=b\rc",
            "text/html; " + "x" * 200,
        ],
    )
    def test_what_is_no_content_type(self, context, media, content_type):
        """G14: it is sent to browsers as it is. And it has to fit its column."""
        with pytest.raises(ValueError, match="is not a content type"):
            Output("x", content_type)
        with pytest.raises(ValueError, match="is not a content type"):
            context.publish(b"x", "a", content_type=content_type)
