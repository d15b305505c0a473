"""Turns arrays into colours, and colours into PNG pictures."""

from io import BytesIO

import numpy as np
from PIL import Image

# Colours from valley to summit. Each entry is a fraction of the relief, and red, green and blue.
TINTS = (
    (0.00, (112, 147, 118)),
    (0.12, (146, 175, 130)),
    (0.30, (193, 203, 150)),
    (0.50, (222, 205, 160)),
    (0.70, (200, 164, 124)),
    (0.88, (176, 142, 122)),
    (1.00, (236, 232, 228)),
)
# Colours of flow, from a single cell to the largest stream, in the same form.
WATER = (
    (0.00, (247, 246, 240)),
    (0.30, (226, 232, 232)),
    (0.50, (158, 196, 218)),
    (0.70, (66, 134, 190)),
    (1.00, (8, 38, 96)),
)
# The fraction of red, green and blue that remains in the deepest shadow.
SKY = np.array([0.30, 0.33, 0.40])
# Streams whose strength, from 0 to 1, exceeds this are drawn wider.
BROAD = 0.72


def ramp(values, stops):
    """Return a colour for each value from 0 to 1, interpolated between ``stops``.

    Each colour consists of red, green and blue as floats from 0 to 1.
    """
    places = [place for place, _ in stops]
    channels = zip(*(colour for _, colour in stops), strict=True)
    return np.stack([np.interp(values, places, c) for c in channels], axis=-1) / 255


def scale_of(elevation, shade):
    """Return the ranges of elevation and brightness over which a relief spreads its colours."""
    heights = np.percentile(elevation, [0.5, 99.8])
    return {"heights": heights.tolist(), "lights": _extremes(shade).tolist()}


def shaded_relief(elevation, shade, scale=None):
    """Return the colours of a relief, tinted by height and lit by ``shade``.

    To draw parts that fit together, pass as ``scale`` the :func:`scale_of` of the whole terrain.
    """
    scale = scale or scale_of(elevation, shade)
    low, high = scale["heights"]
    tint = ramp(np.clip((elevation - low) / (high - low), 0, 1), TINTS)
    # Soft light keeps the tint at medium brightness, does not bleach bright slopes, and leaves some
    # colour in shadows, with the blue of the sky.
    light = _between(shade, *scale["lights"])[..., None]
    dark = tint * (SKY + (1 - SKY) * 2 * light)
    return np.where(light < 0.5, dark, tint + (1 - tint) * (light - 0.5) * 0.9)


def flow_map(amount, shade):
    """Return the colours of streams on a faint relief. Larger streams are a deeper blue.

    The grid of ``amount`` can be finer than that of ``shade`` by a whole factor. Each block of
    cells then shows its largest amount, because averaging would thin out a stream.
    """
    strength = np.log(_largest_of_blocks(amount, shade.shape)) / np.log(amount.max())
    framed = np.pad(strength, 1)
    beside = np.maximum.reduce(
        [framed[:-2, 1:-1], framed[2:, 1:-1], framed[1:-1, :-2], framed[1:-1, 2:]]
    )
    wide = np.where(beside > BROAD, np.maximum(strength, beside), strength)
    return ramp(wide, WATER) * (0.72 + 0.28 * stretched(shade)[..., None])


def _largest_of_blocks(values, shape):
    rows, columns = shape
    high, broad = values.shape[0] // rows, values.shape[1] // columns
    return values.reshape(rows, high, columns, broad).max(axis=(1, 3))


def stretched(shade):
    """Return brightness stretched to the range from 0 to 1, with its extremes clipped."""
    return _between(shade, *_extremes(shade))


def _extremes(shade):
    return np.percentile(shade, [0.5, 99.5])


def _between(values, low, high):
    return np.clip((values - low) / max(high - low, 1e-9), 0, 1)


def joined(tiles):
    """Return the colours of the whole picture, joined from its tiles.

    ``tiles`` contains pairs of a part, as ``terrain.parts()`` returns it, and the part's PNG.
    """
    whole = np.zeros((max(part[1] for part, _ in tiles), max(part[3] for part, _ in tiles), 3))
    for (top, bottom, left, right), data in tiles:
        with Image.open(BytesIO(data)) as image:
            whole[top:bottom, left:right] = np.asarray(image.convert("RGB")) / 255
    return whole


def png(colours, *, width, aspect):
    """Return colours as a PNG that is ``width`` pixels wide.

    ``aspect`` is the height of a cell divided by its width.
    """
    rows, columns, _ = colours.shape
    image = Image.fromarray((np.clip(colours, 0, 1) * 255).round().astype(np.uint8))
    height = round(width * rows / columns * aspect)
    image = image.resize((width, height), Image.Resampling.LANCZOS)
    data = BytesIO()
    image.save(data, "PNG", optimize=True)
    return data.getvalue()
