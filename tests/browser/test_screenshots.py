"""Tests of :mod:`tests.browser.screenshots`: how a picture is made small."""

import random
from io import BytesIO

import pytest
from PIL import Image

from . import screenshots
from .screenshots import small

WHITE, BLUE = (255, 255, 255), (37, 99, 235)
LARGEST = 8000


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(screenshots, "LARGEST", LARGEST)


def saved(image):
    data = BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def noise(size):
    return Image.frombytes("RGB", size, random.Random(1).randbytes(size[0] * size[1] * 3))


def test_surfaces_keep_their_size_and_their_colour():
    page = Image.new("RGB", (300, 400), WHITE)
    page.paste(BLUE, (100, 100, 200, 140))
    # More colours than there are places for.
    page.paste(noise((40, 40)), (200, 200))
    made = Image.open(BytesIO(small(saved(page)))).convert("RGB")
    assert made.size == page.size
    assert made.getpixel((10, 10)) == WHITE
    assert made.getpixel((150, 120)) == BLUE


def test_what_is_full_of_detail_is_made_smaller():
    page = Image.new("RGB", (300, 200), WHITE)
    page.paste(noise((120, 120)), (100, 50))
    data = small(saved(page))
    assert len(data) <= LARGEST
    assert Image.open(BytesIO(data)).width < page.width


def test_too_much_detail_is_refused():
    with pytest.raises(ValueError, match="too much in the picture"):
        small(saved(noise((300, 200))))
