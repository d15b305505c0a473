"""Tests of :mod:`atp.authoring.context`: scratch directories, published files, outputs."""

import gzip
import io
import os
import tempfile

import pytest
from django.core.files.storage import default_storage

from atp.authoring.context import Output, storage_path
from atp.exceptions import TooLarge

from .helpers import NOBODY


def test_scratch_is_a_directory_of_the_attempts_own(context, tmp_path):
    context.remove_scratch()
    assert list(tmp_path.iterdir()) == []
    assert context.scratch is context.scratch
    (context.scratch / "a").write_text("x")
    assert context.scratch.parent == tmp_path
    assert context.scratch.stat().st_mode & 0o777 == 0o700
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

    @pytest.mark.parametrize(
        ("level", "how"),
        [
            ("atp-scratch-abc", "link"),
            ("atp-scratch-abc", "of all"),
            ("atp-scratch-abc", "of another"),
            ("atp-scratch-abc/worker-0", "link"),
            ("atp-scratch-abc/worker-0", "of the group"),
            ("atp-scratch-abc/worker-0", "of another"),
            ("atp-scratch-abc/worker-0", "file"),
        ],
    )
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

    def test_every_kind_of_file(self, context, said, media, tmp_path):
        path = tmp_path / "a.png"
        path.write_bytes(b"\x89PNG")
        with path.open("rb") as opened:
            for given, name in (
                *((path, None), (str(path), None), (b"\x89PNG", "a.png"), (opened, None)),
                (io.BytesIO(b"\x89PNG"), "a.png"),
            ):
                told = context.publish(given, name)
                assert told == {
                    "name": "a.png",
                    "path": told["path"],
                    "content_type": "image/png",
                    "size": 4,
                    "attempt": 3,
                }
                assert said[-1] == ("file", told)
                with default_storage.open(told["path"]) as stored:
                    assert stored.read() == b"\x89PNG"
        assert said[0][1]["path"] == storage_path(context.uuid, 3, "a.png")
        # None is written over another.
        assert len({each["path"] for _, each in said}) == 5

    def test_the_size_is_that_of_what_is_stored(self, context, media, tmp_path):
        unflushed = tempfile.TemporaryFile()
        unflushed.write(b"x" * 100)
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 10_000))
        end, begin = os.pipe()
        os.write(begin, b"abc")
        os.close(begin)
        for opened in (unflushed, gzip.open(tmp_path / "a.gz"), os.fdopen(end, "rb")):
            with opened:
                told = context.publish(opened, "a.bin")
            with default_storage.open(told["path"]) as stored:
                assert told["size"] == len(stored.read()) > 0

    def test_not_without_end(self, context, said, media, settings):
        """G5."""
        settings.ATP = {**settings.ATP, "MAX_FILES": 2}
        context.publish(b"x", "a")
        context.publish(b"x", "a")
        with pytest.raises(TooLarge, match="2 files"):
            context.publish(b"x", "a")
        assert len(said) == 2

    def test_a_name_is_needed_and_does_not_lead_out_of_the_instances_folder(self, context, media):
        """G14."""
        for content, name in ((b"x", None), (b"x", ""), (io.BytesIO(b"x"), None)):
            with pytest.raises(ValueError, match="name"):
                context.publish(content, name)
        for name in ("../../etc/passwd", "/etc/passwd", "a/../../b", "ä b?.png"):
            path = context.publish(b"x", name)["path"]
            assert path.startswith(f"atp/{context.uuid}/3-")
            assert ".." not in path.split("/")
            assert path.count("/") == 2


def test_what_is_an_output(context, media):
    """G14: a content type is sent to browsers as it is. And it has to fit its column."""
    for content in ("text", b"x"):
        assert Output(content, "text/html; charset=utf-8").content == content
    for content in (None, 5, {"a": 1}):
        with pytest.raises(TypeError, match="text or bytes"):
            Output(content)
    for content_type in (
        *("png", "image/", "/png", "a b/c", "ä/b", "text/html\nx", "text/html; a=b\rc"),
        *("text/html; a=b\r\nSet-Cookie: c=d", "text/html; " + "x" * 200),
    ):
        with pytest.raises(ValueError, match="is not a content type"):
            Output("x", content_type)
        with pytest.raises(ValueError, match="is not a content type"):
            context.publish(b"x", "a", content_type=content_type)
