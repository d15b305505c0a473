"""The hooks that code declares: of Types by name, and by patterns of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from django.core.signals import setting_changed

from ..payload.hooks import Hook
from .registry import registry

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType
    from ..store.values import Registration


@dataclass(frozen=True)
class HookSpec:
    """A hook, and the declared Type that it enqueues."""

    hook: Hook
    type: TaskType = field(compare=False)


# A pattern of Types, as "dem.*", and a hook that they have.
Pattern = tuple[str, HookSpec]


class DeclaredHooks:
    """The hooks of all Types that this process declares."""

    def __init__(self) -> None:
        # By the hooks themselves, so that a module may be imported anew.
        self._patterns: dict[tuple[str, Hook], HookSpec] = {}
        self._sources: list[Callable[[], Iterable[Pattern]]] = []
        # By identifier of a Type: asked at every enqueue.
        self._found: dict[str, tuple[HookSpec, ...]] = {}
        setting_changed.connect(self.forget)

    def add(self, pattern: str, spec: HookSpec) -> None:
        """Add a hook of all Types that a pattern matches."""
        self._patterns[pattern, spec.hook] = spec
        self.forget()

    def add_source(self, source: Callable[[], Iterable[Pattern]]) -> None:
        """Add what says such patterns whenever it is asked, as settings do."""
        if source not in self._sources:
            self._sources.append(source)
        self.forget()

    def forget(self, **kwargs: object) -> None:
        """Look anew: Types, patterns or settings are others."""
        self._found.clear()

    def patterns(self) -> Iterator[Pattern]:
        """Yield all patterns that are declared, each with its hook."""
        yield from ((pattern, spec) for (pattern, _), spec in self._patterns.items())
        for source in self._sources:
            yield from source()

    def of(self, task_type: TaskType) -> tuple[HookSpec, ...]:
        """Return the hooks of a Type. What is a hook itself has none by patterns."""
        name = task_type.identifier
        found = self._found.get(name)
        if found is None:
            specs = [*task_type.on_finished, *task_type.on_failed]
            patterns = list(self.patterns())
            if patterns and name not in self._hook_types(patterns):
                specs += [spec for pattern, spec in patterns if fnmatchcase(name, pattern)]
            found = self._found[name] = tuple(dict.fromkeys(specs))
        return found

    @staticmethod
    def _hook_types(patterns: list[Pattern]) -> set[str]:
        """Return the identifiers of all Types that are hooks."""
        found = {spec.hook.type for _, spec in patterns}
        for each in registry:
            found |= {spec.hook.type for spec in (*each.on_finished, *each.on_failed)}
        return found


def hook_types(specs: Iterable[HookSpec]) -> tuple[Registration, ...]:
    """Return the parameters of the Types that these hooks enqueue, each once."""
    types = {spec.hook.type: spec.type for spec in specs}
    return tuple(type.registration() for type in types.values())


declared_hooks = DeclaredHooks()
