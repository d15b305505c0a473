"""The Type ``atp.webhook``: a hook that tells a target of the setting WEBHOOKS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..authoring.task_type import task_type
from ..conf import InvalidSetting, settings
from ..conf.webhooks import Target, problems, target_of
from ..exceptions import Fatal
from ..store import get_store
from ..verbs.hook_specs import Pattern, declared_hooks
from ..verbs.hooking import hooks_of
from ..words.hints import did_you_mean
from ..words.uuids import time_of
from .sending import NotDelivered, send

MINUTE, HOUR = 60, 3600
# Eight retries: the first soon, the last about a day after the end.
RETRIES = (10, MINUTE, 5 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 7 * HOUR, 12 * HOUR)


@task_type("atp.webhook", timeout=60, max_restarts=8, max_retries=len(RETRIES), backoff=RETRIES)
def webhook(
    context: Any,
    *,
    target: str,
    uuid: str,
    type: str,
    state: str,
    reason: str,
    identifier: str | None = None,
    collection: str | None = None,
) -> dict[str, int]:
    """Tell a target how an Instance ended. All retries send the same id of the message.

    An Instance may have no identifier. ``collection`` is None if an older version enqueued this.
    """
    data = {"uuid": uuid, "type": type, "state": state, "reason": reason}
    more = {"identifier": identifier, "collection": collection}
    message = {
        "type": f"atp.instance.{state.lower()}",
        "timestamp": time_of(context.uuid).isoformat(timespec="milliseconds"),
        "data": data | {name: value for name, value in more.items() if value is not None},
    }
    body = json.dumps(message, separators=(",", ":")).encode()
    to = target_named(target)
    try:
        # A receiver refuses a message whose time is not about now: this host's clock may be wrong.
        status = send(to, str(context.uuid), body, get_store().now())
    except NotDelivered as error:
        # A target that asks for a pause gets no request earlier, and no more requests than others.
        if (
            error.after is not None
            and error.after <= RETRIES[min(context.retries, len(RETRIES) - 1)]
        ):
            error.after = None
        raise
    context.log(f"{target} answered {status}")
    return {"status": status}


def target_named(name: str) -> Target:
    """Return the target with this name. Raises Fatal if the setting has none; InvalidSetting."""
    given = settings.WEBHOOKS
    if name not in given:
        raise Fatal(f"ATP['WEBHOOKS'] has no target {name!r}.{did_you_mean(name, given)}")
    return _target(name)


def _target(name: str) -> Target:
    given = settings.WEBHOOKS[name]
    for problem in problems({name: given}):
        raise InvalidSetting(problem)
    return target_of(name, given)


def _patterns() -> Iterator[Pattern]:
    """Yield the patterns of the setting, each with the hook that tells its target."""
    for name in settings.WEBHOOKS:
        for on, pattern in _target(name).patterns:
            setting = f"ATP['WEBHOOKS'][{name!r}]"
            [spec] = hooks_of(setting, on, (webhook, {"target": name}))
            yield pattern, replace(spec, setting=setting)


declared_hooks.add_source(_patterns)
