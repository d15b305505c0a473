"""The program ``python -m demo_project``: its directory, child processes, board and result."""

import io
import socket
from types import SimpleNamespace

import pytest
from PIL import Image

from atp.models import Instance, Response
from atp.states import Reason, State
from demo_project import tasks
from demo_project.show import DemoError, programme
from demo_project.show.board import LineBoard, LiveBoard, board
from demo_project.show.children import Child, start_web
from demo_project.show.directory import owned

from ..environment import ROOT
from ..helpers import wait_for


def instance(inputs=None, **facts):
    """Return an Instance as the board sees it."""
    known = {"pk": 1, "reason": "", "attempt": 1, "progress": None, "progress_message": ""}
    return SimpleNamespace(
        type=SimpleNamespace(identifier="dem.shade"),
        inputs=SimpleNamespace(value=inputs or {}),
        **{**known, "state": State.ACCEPTED, **facts},
    )


def test_a_directory_is_used_by_one_demo_at_a_time(tmp_path):
    for _ in range(2):
        with (
            owned(tmp_path / "new"),
            owned(tmp_path / "other"),
            pytest.raises(DemoError, match="Another demo is running"),
            owned(tmp_path / "new"),
        ):
            pass


def test_a_dead_child_process_is_reported_with_the_end_of_its_log(tmp_path):
    child = Child("clerk", [ROOT / "manage.py", "no-such-command"], log=tmp_path / "log")
    wait_for(lambda: child.status is not None)
    with pytest.raises(DemoError, match=r"(?s)The clerk ended with status 1.*no-such-command"):
        child.check()
    assert child.stop(patience=1) == 1


@pytest.mark.long
def test_a_port_in_use_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("DEMO_DIR", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "demo_project.settings")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DemoError, match=rf"(?s)port {port}\..*already in use"):
            start_web(port, manage=ROOT / "manage.py", log=tmp_path / "log")


def test_without_a_terminal_each_change_prints_a_line():
    stream = io.StringIO()
    shown = board(stream)
    assert isinstance(shown, LineBoard)
    running = {"state": State.RUNNING, "progress_message": "tile"}
    for state in (
        *[{"state": State.ACCEPTED}] * 2,
        {**running, "progress": 0.05},
        {**running, "progress": 0.10},
        {**running, "progress": 0.30},
        {"state": State.FINISHED, "progress": 1.0},
    ):
        shown.show([instance(**state)])
    lines = [line.split("dem.shade")[1].strip() for line in stream.getvalue().splitlines()]
    assert lines == ["ACCEPTED", "RUNNING 5% tile", "RUNNING 30% tile", "FINISHED"]


def test_on_a_terminal_the_board_is_redrawn_in_place(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "24")
    stream = io.StringIO()
    shown = LiveBoard(stream)
    two = [instance(), instance(pk=2, state=State.FAILED, reason=Reason.STALE, attempt=3)]
    shown.show(two)
    first = stream.getvalue()
    assert first.count("\n") == 2
    assert "\x1b[2F" not in first
    shown.show(two)
    assert stream.getvalue() == first + "\x1b[2F" + first


@pytest.mark.django_db
def test_a_missing_or_blank_picture_is_reported(tmp_path):
    enqueued = tasks.hillshade.enqueue(azimuth=90)
    Instance.objects.filter(pk=enqueued.pk).update(state=State.FINISHED, finished=enqueued.created)

    def problems():
        [row] = programme.selected(pk=enqueued.pk)
        picture = programme.save_picture(row, tmp_path / "pictures")
        assert picture is None or picture.name == "terrain.hillshade-azimuth-90.png"
        return [text.partition(":")[0] for text in programme.problems(row, picture)]

    assert problems() == ["returned no picture"]
    response = Response(instance=enqueued, content_type="image/png")
    for greys, found in (((10, 250), []), ((128, 130), ["drew nothing"])):
        response.data = two_greys(*greys)
        response.size = len(response.data)
        response.save()
        assert problems() == found


def two_greys(dark, light):
    image = Image.new("L", (2, 1), dark)
    image.putpixel((1, 0), light)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()
