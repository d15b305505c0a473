"""Schedules in the portable store: declaring them, planning their slots, and their overlaps."""

from .declaring import Schedules as Schedules
