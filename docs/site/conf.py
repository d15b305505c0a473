"""How ``make docs`` builds the site of the docs, with Sphinx.

The source folder is that of the repository, and each page of the site has the path that its file
has there. So a relative link leads to the same page on the site and in the repository. A file that
is no page is copied into the site when a page links to it.
"""

import re
from pathlib import Path

import django
from django.conf import settings
from pygments.lexers.shell import BashSessionLexer
from pygments.lexers.special import TextLexer

from atp import __version__

# The reference reads docstrings of modules with models.
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "atp"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

project = "ATP"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["README.md", "SECURITY.md", "docs/**"]
exclude_patterns = [".*", "build", "docs/site"]

# Pages are Markdown as repositories show it, so what MyST adds to that is text here.
myst_disable_syntax = ["myst_role", "myst_target", "myst_line_comment", "myst_block_break"]
myst_heading_anchors = 6

autodoc_default_options = {"member-order": "bysource"}
# Defaults as the code writes them: KEEP, not <object object>.
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 120
# A name in a docstring that leads nowhere is an error, but of the classes in type hints many are
# not in the reference: those of Python and Django, and those that ATP keeps to itself.
nitpicky = True
nitpick_ignore_regex = [("py:(class|obj)", ".*")]

# It has the system's fonts, and its styles and scripts are files of the site.
html_theme = "furo"
html_title = f"ATP {release}"
html_show_copyright = False
html_copy_source = False
smartquotes = False
templates_path = ["."]
html_additional_pages = {"index": "start.html"}
# A fence that names no language has what a command prints, or a drawing.
highlight_language = "text"

INDEX = Path(__file__).parent.parent / "index.md"


class Console(BashSessionLexer):
    """A session of a shell, with commands of several lines that need no backslash."""

    _bare_continuation = True


def navigation():
    """Return the navigation, in MyST: the sections of docs/index.md, and the pages of each."""
    parts = ["\n```{toctree}\n:hidden:\n\nAll pages <docs/index>\n```\n"]
    for section in re.split(r"^## ", INDEX.read_text(), flags=re.MULTILINE)[1:]:
        caption, rows = section.split("\n", 1)
        pages = re.findall(r"^\| \[(.+?)\]\((.+?)\.(?:md|rst)\)", rows, re.MULTILINE)
        entries = "".join(f"{title} <docs/{page}>\n" for title, page in pages)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}```\n")
    return "".join(parts)


def add_navigation(app, page, source):
    if page == app.config.root_doc:
        source[0] += navigation()


def setup(app):
    app.connect("source-read", add_navigation)
    app.add_lexer("console", Console)
    # Shown as text: to draw it, readers would have to fetch a script.
    app.add_lexer("mermaid", TextLexer)
