"""System checks: they report problems with a project's settings before a task runs."""

from .contracts import check_contracts
from .deployment import (
    check_database_file,
    check_pickle,
    check_public_files,
    check_scratch_owner,
    check_user,
    check_webhooks,
)
from .folders import check_scratch, check_storage
from .hooks import check_hooks
from .middleware import check_middleware
from .pages import check_login, check_users
from .queue import check_queue_database, check_retention, check_transactional
from .settings import check_settings
from .tailers import check_tailers
from .tasks import check_tasks
from .types import check_types

__all__ = [
    "check_contracts",
    "check_database_file",
    "check_hooks",
    "check_login",
    "check_middleware",
    "check_pickle",
    "check_public_files",
    "check_queue_database",
    "check_retention",
    "check_scratch",
    "check_scratch_owner",
    "check_settings",
    "check_storage",
    "check_tailers",
    "check_tasks",
    "check_transactional",
    "check_types",
    "check_user",
    "check_users",
    "check_webhooks",
]
