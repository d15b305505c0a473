"""Executors: engines that run attempts on other hosts. The setting EXECUTORS names them."""

from .base import EngineAway, Executor
from .dask import Dask
from .fork import Fork
from .ray import Ray

__all__ = ["Dask", "EngineAway", "Executor", "Fork", "Ray"]
