"""Responses and files are either harmless or downloaded; none is a page of the site (G14)."""

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from atp.models import Response
from atp.pages.base import MAX_TEXT_SHOWN
from atp.states import State

from ..populated import MARKUP
from .pages import check_page

PNG = b"\x89PNG\r\n\x1a\n rest"


def get(client, instance, what="response", below="/atp"):
    return client.get(f"{below}/instances/{instance.uuid}/{what}")


SHOWN_TYPES = ("image/png", "image/jpeg", "text/plain; charset=utf-8", "application/json")
SENT = (
    *("text/html", "TEXT/HTML; charset=utf-8", "image/svg+xml", "application/xhtml+xml"),
    *("text/xml", "text/javascript", "application/pdf", "application/octet-stream"),
)


@pytest.mark.slow
def test_responses_that_could_run_scripts_are_only_downloaded(full, operator):
    """The browser never renders an HTML or SVG response in the origin of the site (G14)."""
    data = MARKUP.encode()
    for content_type in (*SHOWN_TYPES, *SENT):
        instance = full.finished(content_type=content_type, data=data, size=len(data))
        for below in ("/atp", "/atp/api"):
            answer = get(operator, instance, below=below)
            assert answer["Content-Type"] == content_type
            how = "inline" if content_type in SHOWN_TYPES else "attachment"
            assert answer["Content-Disposition"].startswith(how), content_type
            assert f"response-{instance.uuid}" in answer["Content-Disposition"]
            assert answer["X-Content-Type-Options"] == "nosniff"
            assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
            assert answer["Cross-Origin-Resource-Policy"] == "same-origin"
            assert answer.getvalue() == data
        shown = operator.get(f"/atp/instances/{instance.uuid}/")
        check_page(shown, lacks=[MARKUP])
        if content_type in ("text/html", "image/svg+xml"):
            check_page(shown, "&lt;script&gt;", lacks=["<img"])
    for content_type in ("nonsense", "text/html\r\nX-Evil: 1", "a/b; c", "é/ü"):
        answer = get(operator, full.finished(content_type=content_type, data=b"x", size=1))
        assert answer["Content-Type"] == "application/octet-stream"
        assert answer["Content-Disposition"].startswith("attachment")
        assert "X-Evil" not in answer


def test_a_picture_is_shown_and_a_long_text_is_truncated(full, operator):
    instance = full.finished(content_type="image/png", data=PNG, size=len(PNG))
    address = f"/atp/instances/{instance.uuid}/"
    check_page(operator.get(address), f'<img class="picture" src="{address}response"')
    data = b"x" * (MAX_TEXT_SHOWN + 1)
    instance = full.finished(content_type="text/plain", data=data, size=len(data))
    check_page(operator.get(f"/atp/instances/{instance.uuid}/"), "Cut here")
    assert get(operator, instance).getvalue() == data


def test_responses_in_files_and_published_files_are_downloaded(full, operator):
    path = storages["default"].save("atp/page.html", ContentFile(MARKUP.encode()))
    stored = full.finished(content_type="application/zip", data=None, file=path, size=5)
    published = full[State.FINISHED]
    [entry] = published.response.files
    Response.objects.filter(instance=published).update(files=[{**entry, "path": path}])
    sent = [
        (instance, what, below)
        for instance, what in ((stored, "response"), (published, "files/0"))
        for below in ("/atp", "/atp/api")
    ]
    for each in sent:
        answer = get(operator, *each)
        assert answer.getvalue() == MARKUP.encode()
        assert answer["Content-Disposition"].startswith("attachment")
        assert "\n" not in answer["Content-Disposition"]
        is_named = f"response-{stored.uuid}" in answer["Content-Disposition"]
        assert is_named == (each[1] == "response")
    assert get(operator, published, "files/1").status_code == 404
    storages["default"].delete(path)
    assert [get(operator, *each).status_code for each in sent] == [404] * 4
