"""The documentation says what is: derived parts are up to date, nothing is missing."""

import re

import pytest

from atp import exceptions
from tests import generated


@pytest.mark.parametrize("name", sorted(generated.PARTS))
def test_derived_parts_are_up_to_date(name):
    """``python -m tests.generated`` writes them anew."""
    page = (generated.DOCS / name).read_text()
    assert generated.render(page) == page
    for part in generated.PARTS[name]:
        assert f"<!-- {part.__name__} -->" in page


def test_every_promise_is_shown_by_tests():
    """That the tests which the page names are there, and that each promise has some."""
    page = (generated.DOCS / "guarantees.md").read_text()
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page):
        source = generated.DOCS.parent / path
        assert source.exists(), path
        assert not name or f"def {name}(" in source.read_text(), f"{path}::{name}"
    for number in range(1, 16):
        assert f"\n## G{number}. " in page
        [row] = re.findall(rf"^\| G{number} \| (.*) \|$", page, re.MULTILINE)
        assert "`" in row, f"no test names G{number}"


def test_every_link_between_pages_leads_somewhere():
    for page in generated.DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index():
    index = (generated.DOCS / "index.md").read_text()
    for page in generated.DOCS.rglob("*.md"):
        name = page.relative_to(generated.DOCS).as_posix()
        assert name == "index.md" or f"({name})" in index


def test_every_parameter_and_option_is_documented():
    from dataclasses import fields

    from atp.options import Options
    from atp.registry import _KNOWN

    page = (generated.DOCS / "tasks.md").read_text()
    for name in (*_KNOWN, *(field.name for field in fields(Options))):
        assert name in page, name


def test_every_exception_has_a_contract():
    for name, thing in vars(exceptions).items():
        if isinstance(thing, type) and issubclass(thing, BaseException):
            assert thing.__doc__, name
