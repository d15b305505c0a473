"""A graph as Mermaid text and as an indented list."""

import re

from atp.graphs.drawing import Link, escape_label, mermaid, outline

from .samples import fan, mixed, node

NODE = re.compile(r'  n\d+\["[^"<>`&#;%:]*(?:#\d+;[^"<>`&#;%:]*)*<br/>[\w ,.×…#;()]+"\]:::[a-z]+')
LINE = re.compile(r"  n\d+ (?:-->|-\.->)(?:\|\d+\|)? n\d+")
CLASS = re.compile(r"  classDef [a-z]+ stroke:#[0-9a-f]{6},stroke-width:2px")


def test_mermaid_text_is_valid_and_distinguishes_edges_that_ignore_failures():
    nodes, links = fan(30)
    text = mermaid(nodes, [Link(up, down, down == 31) for up, down, _ in links])
    for told in ("part × 30", "  n0 -->|30| n1", "  n1 -.->|30| n2"):
        assert told in text
    for each in (text, mermaid(*mixed(50, 1))):
        first, *lines = each.splitlines()
        assert first == "flowchart LR"
        for line in lines:
            assert any(kind.fullmatch(line) for kind in (NODE, LINE, CLASS)), line


def test_mermaid_syntax_in_labels_is_escaped():
    for text, told in (
        ('say "x"', "say #34;x#34;"),
        ("<b>&#35;", "#60;b#62;#38;#35;35#59;"),
        ("a`b`]--> n1", "a#96;b#96;#93;--#62; n1"),
        ("two\nlines\tand more", "two lines and more"),
        ("日本 é", "日本 é"),
    ):
        assert escape_label(text) == told


def test_the_outline_puts_a_join_below_its_last_branch():
    nodes = [node(key, f"type-{key}", name=name) for key, name in enumerate("abcde")]
    links = [Link(0, 1), Link(0, 2), Link(1, 3), Link(2, 3), Link(3, 4), Link(0, 4)]
    entries = outline(nodes, links)
    assert [(entry.depth, entry.box.label, entry.after) for entry in entries] == [
        (0, "a", ()),
        (1, "b", ("a",)),
        (1, "c", ("a",)),
        (2, "d", ("b", "c")),
        (3, "e", ("a", "d")),
    ]
