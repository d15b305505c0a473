"""The hooks that code declares: those of single Types, and those of patterns of identifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from django.core.signals import setting_changed

from ..payload.hooks import Hook
from .registry import is_internal, registry

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType
    from ..store.values import Registration


@dataclass(frozen=True)
class HookSpec:
    """A hook, the declared Type that it enqueues, and the setting that declares it, if one does."""

    hook: Hook
    type: TaskType = field(compare=False)
    setting: str = field(default="", compare=False)


# A pattern of identifiers of Types, as "dem.*", and the hook of the Types that match it.
Pattern = tuple[str, HookSpec]


class DeclaredHooks:
    """The hooks of all Types that this process declares."""

    def __init__(self) -> None:
        # The hook is part of the key, so that importing a module again adds none twice.
        self._patterns: dict[tuple[str, Hook], HookSpec] = {}
        self._sources: list[Callable[[], Iterable[Pattern]]] = []
        # The hooks by identifier of a Type: a cache, as each enqueue asks for them.
        self._found: dict[str, tuple[HookSpec, ...]] = {}
        setting_changed.connect(self.forget)

    def add(self, pattern: str, spec: HookSpec) -> None:
        """Add a hook for all Types whose identifier matches a pattern."""
        self._patterns[pattern, spec.hook] = spec
        self.forget()

    def add_source(self, source: Callable[[], Iterable[Pattern]]) -> None:
        """Add a function that returns pairs of pattern and hook on each call, as from settings."""
        if source not in self._sources:
            self._sources.append(source)
        self.forget()

    def forget(self, **kwargs: object) -> None:
        """Clear the cache, because Types, patterns or settings have changed."""
        self._found.clear()

    def patterns(self) -> Iterator[Pattern]:
        """Yield all declared patterns, each with its hook."""
        yield from ((pattern, spec) for (pattern, _), spec in self._patterns.items())
        for source in self._sources:
            yield from source()

    def of(self, task_type: TaskType) -> tuple[HookSpec, ...]:
        """Return the hooks of a Type: its own, and those of the patterns that match it."""
        name = task_type.identifier
        found = self._found.get(name)
        if found is None:
            specs = [*task_type.on_finished, *task_type.on_failed]
            patterns = list(self.patterns())
            if patterns and name not in self._hook_types(patterns):
                specs += [spec for pattern, spec in patterns if _matches(pattern, task_type)]
            found = self._found[name] = tuple(dict.fromkeys(specs))
        return found

    def unmatched(self) -> Iterator[tuple[str, HookSpec, list[str]]]:
        """Yield the patterns that stand for no declared Type, each with the Types it leaves out."""
        patterns = list(self.patterns())
        hooks = self._hook_types(patterns)
        for pattern, spec in patterns:
            found = [each for each in registry if fnmatchcase(each.identifier, pattern)]
            if all(each.identifier in hooks or not _matches(pattern, each) for each in found):
                yield pattern, spec, [each.identifier for each in found]

    @staticmethod
    def _hook_types(patterns: list[Pattern]) -> set[str]:
        """Return the identifiers of all Types that are used as hooks: they get no hooks."""
        found = {spec.hook.type for _, spec in patterns}
        for each in registry:
            found |= {spec.hook.type for spec in (*each.on_finished, *each.on_failed)}
        return found


def _matches(pattern: str, type: TaskType) -> bool:
    """Whether a pattern is for a Type.

    A tailer looks into its source every few seconds, and the Types of ATP itself carry out what an
    operator has started: only a pattern that is their whole name is for them.
    """
    if pattern == type.identifier:
        return True
    is_left_out = type.is_tailer or is_internal(type.identifier)
    return not is_left_out and fnmatchcase(type.identifier, pattern)


def hook_types(specs: Iterable[HookSpec]) -> tuple[Registration, ...]:
    """Return the Registrations of the Types that these hooks enqueue, each Type once."""
    types = {spec.hook.type: spec.type for spec in specs}
    return tuple(type.registration() for type in types.values())


declared_hooks = DeclaredHooks()
