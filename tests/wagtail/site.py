"""Uses or checks a Wagtail site, in its folder: ``python -m tests.wagtail.site STEP``."""

import sys
import time

import django

WORD = "dromedary"
# Long enough for a loaded machine, in seconds.
DEADLINE = 120.0
INDEXING = {
    "modelsearch.tasks.insert_or_update_object_task",
    "wagtail.tasks.update_reference_index_task",
}
DELETING = {"wagtail.tasks.delete_file_from_storage_task"}


def use():
    """Publish a page, and add a document to a collection; nothing is indexed yet."""
    from django.core.files.base import ContentFile
    from home.models import HomePage
    from wagtail.documents import get_document_model

    page = HomePage(title=f"The {WORD}", slug=WORD)
    HomePage.objects.get(slug="home").add_child(instance=page)
    page.save_revision().publish()
    document = get_document_model()(title="A letter")
    document.file.save("letter.txt", ContentFile(b"of the dromedary"))
    document.save()
    _look("ACCEPTED", INDEXING, is_found=False, references=0, files=1)


def wait():
    """Wait until no Task waits or runs; tasks that collided in two workers are retried."""
    from atp.models import Task

    ends = time.monotonic() + DEADLINE
    while Task.objects.exists():
        assert time.monotonic() < ends, "not all tasks have ended"
        time.sleep(0.1)


def used():
    """Assert that the search finds the page and that the document refers to its collection."""
    _look("FINISHED", INDEXING, is_found=True, references=1, files=1)


def delete():
    """Delete the document, whose file still exists."""
    from wagtail.documents import get_document_model

    get_document_model().objects.get(title="A letter").delete()
    assert len(_files()) == 1


def deleted():
    """Assert that the file was deleted."""
    _look("FINISHED", INDEXING | DELETING, is_found=True, references=0, files=0)


def _look(state, types, *, is_found, references, files):
    from atp.models import Instance

    for each in Instance.objects.select_related("type"):
        print(f"  {each.type.identifier}: {each.state} {each.reason}")
    assert set(Instance.objects.values_list("state", flat=True)) == {state}
    assert set(Instance.objects.values_list("type__identifier", flat=True)) == types
    there = _is_found(), _references(), len(_files())
    assert there == (is_found, references, files), there


def _is_found():
    from wagtail.models import Page

    return Page.objects.live().search(WORD).count() > 0


def _references():
    from wagtail.models import ReferenceIndex

    rows = ReferenceIndex.objects.select_related("base_content_type", "to_content_type")
    found = [(r.base_content_type.model, r.to_content_type.model) for r in rows]
    print(f"  references: {sorted(found)}")
    return len(found)


def _files():
    from pathlib import Path

    from django.conf import settings

    return list(Path(settings.MEDIA_ROOT).glob("documents/*"))


if __name__ == "__main__":
    django.setup()
    {"use": use, "wait": wait, "used": used, "delete": delete, "deleted": deleted}[sys.argv[1]]()
