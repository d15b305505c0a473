"""Arrays as pictures: colours, and PNG."""

from io import BytesIO

import numpy as np
from PIL import Image

# Colours by height, from valley to summit: the fraction of the relief, and red, green, blue.
TINTS = (
    (0.00, (112, 147, 118)),
    (0.12, (146, 175, 130)),
    (0.30, (193, 203, 150)),
    (0.50, (222, 205, 160)),
    (0.70, (200, 164, 124)),
    (0.88, (176, 142, 122)),
    (1.00, (236, 232, 228)),
)
# Colours of flow, from a single cell to the largest stream.
WATER = (
    (0.00, (247, 246, 240)),
    (0.30, (226, 232, 232)),
    (0.50, (158, 196, 218)),
    (0.70, (66, 134, 190)),
    (1.00, (8, 38, 96)),
)
# How much of its colour the deepest shadow keeps, in red, green and blue.
SKY = np.array([0.30, 0.33, 0.40])
# Streams stronger than this are drawn broader.
BROAD = 0.72


def ramp(values, stops):
    """Return the colours of values from 0 to 1 along ``stops``, as floats from 0 to 1."""
    places = [place for place, _ in stops]
    channels = zip(*(colour for _, colour in stops), strict=True)
    return np.stack([np.interp(values, places, c) for c in channels], axis=-1) / 255


def scale_of(elevation, shade):
    """Return the elevations and the brightness between which a relief has its colours."""
    heights = np.percentile(elevation, [0.5, 99.8])
    return {"heights": heights.tolist(), "lights": _extremes(shade).tolist()}


def shaded_relief(elevation, shade, scale=None):
    """Return elevations tinted by height and lit by ``shade``.

    Parts that are to fit together have the :func:`scale_of` the whole.
    """
    scale = scale or scale_of(elevation, shade)
    low, high = scale["heights"]
    tint = ramp(np.clip((elevation - low) / (high - low), 0, 1), TINTS)
    # Soft light: the middle brightness leaves the tint as it is, bright slopes
    # do not bleach, and shadows keep some colour, with the blue of the sky.
    light = _between(shade, *scale["lights"])[..., None]
    dark = tint * (SKY + (1 - SKY) * 2 * light)
    return np.where(light < 0.5, dark, tint + (1 - tint) * (light - 0.5) * 0.9)


def flow_map(amount, shade):
    """Return streams, the deeper blue the more flows in them, on a faint relief.

    ``amount`` may be on a grid finer than ``shade`` by a whole factor: a
    stream is a line, which the usual averaging would thin out.
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
    """Return brightness spread over the whole range from 0 to 1, but for its extremes."""
    return _between(shade, *_extremes(shade))


def _extremes(shade):
    return np.percentile(shade, [0.5, 99.5])


def _between(values, low, high):
    return np.clip((values - low) / max(high - low, 1e-9), 0, 1)


def joined(tiles):
    """Return one array of colours of pictures with the places of their parts (see terrain)."""
    whole = np.zeros((max(part[1] for part, _ in tiles), max(part[3] for part, _ in tiles), 3))
    for (top, bottom, left, right), data in tiles:
        with Image.open(BytesIO(data)) as image:
            whole[top:bottom, left:right] = np.asarray(image.convert("RGB")) / 255
    return whole


def png(colours, *, width, aspect):
    """Return colours as a PNG ``width`` pixels wide; ``aspect`` is a cell's height by its width."""
    rows, columns, _ = colours.shape
    image = Image.fromarray((np.clip(colours, 0, 1) * 255).round().astype(np.uint8))
    height = round(width * rows / columns * aspect)
    image = image.resize((width, height), Image.Resampling.LANCZOS)
    data = BytesIO()
    image.save(data, "PNG", optimize=True)
    return data.getvalue()
