"""The stylesheet: what is to be read can be read, in light and dark."""

import re

import pytest
from django.contrib.staticfiles import finders

# WCAG 2.2, level AA: text, and the edges of what one works with.
TEXT, EDGE = 4.5, 3.0
STATES = ("accepted", "scheduled", "running", "paused", "finished", "failed")


def colours(scheme):
    """The variables of a colour scheme, as triples from 0 to 1."""
    with open(finders.find("atp/atp.css")) as file:
        light, dark = re.findall(r":root \{(.*?)\}", file.read(), re.DOTALL)
    named = dict(re.findall(r"--([\w-]+): #(\w{6});", light))
    if scheme == "dark":
        named |= dict(re.findall(r"--([\w-]+): #(\w{6});", dark))
    return {
        name: tuple(int(value[n : n + 2], 16) / 255 for n in (0, 2, 4))
        for name, value in named.items()
    }


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def mixed(share, colour, ground):
    return tuple(share * c + (1 - share) * g for c, g in zip(colour, ground, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_stands_out_from_its_ground(scheme):
    named = colours(scheme)
    for ground in ("ground", "paper"):
        for text in ("ink", "quiet", "link", "failed"):
            assert contrast(named[text], named[ground]) >= TEXT, (text, ground)
        for state in STATES:
            pill = mixed(0.1, named[state], named[ground])
            assert contrast(named[state], pill) >= TEXT, (state, ground)
    for ground in ("failed-ground", "warning-ground", "good-ground"):
        assert contrast(named["ink"], named[ground]) >= TEXT, ground
    assert contrast(named["on-accent"], named["accent"]) >= TEXT
    assert contrast(named["edge"], named["paper"]) >= EDGE
