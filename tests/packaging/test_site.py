"""The documentation site, as ``make docs`` builds it in a clone."""

import re
import shutil
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.environment import ROOT

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(1800)]

SOURCES = "README.md", "SECURITY.md", "docs/**/*.md", "docs/**/*.rst"
FOUND = [path for pattern in SOURCES for path in ROOT.glob(pattern)]
PAGES = [path.relative_to(ROOT).with_suffix(".html") for path in FOUND]
# What a browser fetches by itself, and by which attribute.
FETCHED = {
    *("audio", "embed", "iframe", "img", "input", "link", "object", "script", "source", "track"),
    "video",
}


class Page(HTMLParser):
    """The resources, the links and the ids of an HTML page."""

    def __init__(self, path):
        super().__init__()
        self.fetched, self.links, self.ids = set(), set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        addresses = {given[name] for name in ("src", "href", "data") if given.get(name)}
        self.ids.add(given.get("id"))
        if tag in FETCHED:
            self.fetched |= addresses
        elif tag == "a":
            self.links |= addresses


@pytest.fixture(scope="module")
def site(clone, shell, tmp_path_factory):
    """A copy of the built site, which another build in the clone does not change."""
    shell("make docs", clone)
    return shutil.copytree(clone / "build" / "site", tmp_path_factory.mktemp("docs") / "site")


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def is_elsewhere(address):
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def test_the_site_starts_with_the_readme_and_links_every_page(site, pages):
    assert [page for page in PAGES if not (site / page).is_file()] == []
    assert 'url=README.html"' in (site / "index.html").read_text()
    reached = {(site / link).resolve() for link in pages[site / "README.html"].links}
    assert {site / page for page in PAGES if page.name != "README.html"} <= reached
    index = (site / "searchindex.js").read_text()
    assert "docs/transactions" in index
    assert "fingerprint" in index


def test_the_site_fetches_nothing_from_other_hosts(site, pages):
    for path, page in pages.items():
        assert [each for each in page.fetched if is_elsewhere(each)] == [], path
        assert "@import" not in path.read_text()
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        text = style.read_text()
        named = re.findall(r"""(?:@import|url\()\s*["']?([^"')\s]+)""", text)
        assert [each for each in named if is_elsewhere(each) and not each.startswith("data:")] == []


def test_every_link_of_the_site_has_a_target(pages):
    for path, page in pages.items():
        for link in page.links | page.fetched:
            where = urlsplit(link)
            if not is_elsewhere(link):
                target = (path.parent / unquote(where.path)).resolve() if where.path else path
                assert target.is_file(), f"{path} leads to {link}"
                if where.fragment and target in pages:
                    assert unquote(where.fragment) in pages[target].ids, f"{path} leads to {link}"


def test_broken_links_and_unlinked_pages_fail_the_build(clone, shell):
    page, lost = clone / "docs" / "admin.md", clone / "docs" / "lost.md"
    text = page.read_text()
    page.write_text(f"{text}\n[a](gone.md) [b](states.md#gone) [c](#gone)\n")
    lost.write_text("# Lost\n")
    try:
        with pytest.raises(AssertionError) as error:
            shell("make docs", clone)
    finally:
        page.write_text(text)
        lost.unlink()
    said = str(error.value)
    assert len(re.findall(r"admin\.md:\d+: WARNING: .*gone", said)) == 3
    assert "lost.md: WARNING: document isn't included in any toctree" in said
