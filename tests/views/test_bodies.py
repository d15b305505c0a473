"""Responses and files as they are: downloaded or harmless, never a page of this site (G14)."""

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from atp.models import Response
from atp.states import State

from ..populated import MARKUP

PNG = b"\x89PNG\r\n\x1a\n rest"


def get(client, instance, what="response"):
    return client.get(f"/atp/instances/{instance.uuid}/{what}")


def body(answer):
    return answer.getvalue()


@pytest.mark.parametrize(
    ("content_type", "is_shown"),
    [
        ("image/png", True),
        ("image/jpeg", True),
        ("text/plain", True),
        ("text/plain; charset=utf-8", True),
        ("application/json", True),
        ("text/html", False),
        ("TEXT/HTML; charset=utf-8", False),
        ("image/svg+xml", False),
        ("application/xhtml+xml", False),
        ("text/xml", False),
        ("text/javascript", False),
        ("application/pdf", False),
        ("application/octet-stream", False),
    ],
)
def test_only_what_cannot_act_is_shown(content_type, is_shown, full, operator):
    """G14: an HTML or SVG response is never rendered in the site's origin."""
    data = MARKUP.encode()
    instance = full.finished(content_type=content_type, data=data, size=len(data))
    answer = get(operator, instance)
    assert answer["Content-Type"] == content_type
    assert answer["Content-Disposition"].startswith("inline" if is_shown else "attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert body(answer) == data


@pytest.mark.parametrize("content_type", ["nonsense", "text/html\r\nX-Evil: 1", "a/b; c", "é/ü"])
def test_a_content_type_that_is_none(content_type, full, operator):
    instance = full.finished(content_type=content_type, data=b"x", size=1)
    answer = get(operator, instance)
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert "X-Evil" not in answer


def test_a_picture_is_shown_on_the_page(full, operator):
    instance = full.finished(content_type="image/png", data=PNG, size=len(PNG))
    shown = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert f'<img class="picture" src="/atp/instances/{instance.uuid}/response"' in shown


@pytest.mark.parametrize("content_type", ["text/html", "image/svg+xml"])
def test_markup_is_shown_as_text(content_type, full, operator):
    data = MARKUP.encode()
    instance = full.finished(content_type=content_type, data=data, size=len(data))
    shown = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert MARKUP not in shown
    assert "&lt;script&gt;" in shown
    assert "<img" not in shown


def test_a_response_in_a_file(full, operator):
    path = storages["default"].save("atp/large.bin", ContentFile(b"large"))
    instance = full.finished(content_type="application/zip", data=None, file=path, size=5)
    answer = get(operator, instance)
    assert body(answer) == b"large"
    assert f"response-{instance.uuid}" in answer["Content-Disposition"]
    storages["default"].delete(path)
    assert get(operator, instance).status_code == 404


def test_a_published_file(full, operator):
    path = storages["default"].save("atp/page.html", ContentFile(MARKUP.encode()))
    finished = full[State.FINISHED]
    [entry] = finished.response.files
    Response.objects.filter(instance=finished).update(files=[{**entry, "path": path}])
    answer = get(operator, finished, "files/0")
    assert body(answer) == MARKUP.encode()
    assert answer["Content-Disposition"].startswith("attachment")
    assert "\n" not in answer["Content-Disposition"]
    assert get(operator, finished, "files/1").status_code == 404


@pytest.mark.parametrize(
    ("name", "told"),
    [("../../etc/passwd", "passwd"), ("..\\a\x07.txt", "a.txt"), ("..", "file"), ("/", "file")],
)
def test_a_published_file_is_offered_under_a_name_without_folders(full, operator, name, told):
    """G14: and without control characters."""
    path = storages["default"].save("atp/page.html", ContentFile(b"x"))
    finished = full[State.FINISHED]
    [entry] = finished.response.files
    files = [{**entry, "path": path, "name": name}]
    Response.objects.filter(instance=finished).update(files=files)
    answer = get(operator, finished, "files/0")
    body(answer)
    assert answer["Content-Disposition"].endswith(f'filename="{told}"')


def test_no_response_yet(full, operator):
    assert get(operator, full[State.RUNNING]).status_code == 404


def test_a_long_text_is_cut_on_the_page(full, operator):
    from atp.views.bodies import SHOWN

    data = b"x" * (SHOWN + 1)
    instance = full.finished(content_type="text/plain", data=data, size=len(data))
    shown = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert "Cut here" in shown
    assert len(body(get(operator, instance))) == SHOWN + 1
