"""Django's tests that ATPBackend does not pass, grouped by reason.

A test is named ``suite.test``. The suites are Django's four modules. That of ImmediateBackend
runs twice: as ``drained`` after a daemon has run the task, and as ``inline`` on
``atp.testing.InlineBackend``.
"""

ALWAYS = {
    "It asserts the class of the backend.": (
        "tasks.test_using_correct_backend",
        "tasks.test_get_backend",
        "dummy.test_using_correct_backend",
        "drained.test_using_correct_backend",
        "inline.test_using_correct_backend",
    ),
    "It writes into DummyBackend's list of results; here they are read from the queue.": (
        "dummy.test_refresh_result",
        "dummy.test_refresh_result_async",
    ),
    "It asserts that a backend has no priorities; ATP's has.": (
        "custom.test_backend_does_not_support_priority",
    ),
    "It asserts that a backend that defines no enqueue is abstract; ATP's defines it.": (
        "custom.test_no_enqueue",
    ),
    "It asserts that results cannot be had; they can.": (
        "drained.test_cannot_get_result",
        "drained.test_cannot_refresh_result",
        "inline.test_cannot_get_result",
        "inline.test_cannot_refresh_result",
    ),
    "It asserts that run_after is refused; it is taken.": (
        "drained.test_cannot_pass_run_after",
        "inline.test_cannot_pass_run_after",
    ),
    "A KeyboardInterrupt ends its attempt in the worker; nobody who enqueued it waits for it.": (
        "drained.test_throws_keyboard_interrupt",
    ),
    "It asserts that a task has run before the transaction that enqueued it is committed.": (
        "drained.test_doesnt_wait_until_transaction_commit_by_default",
        "inline.test_doesnt_wait_until_transaction_commit_by_default",
    ),
}
OF_BACKPORT = {
    "The backport says it in other words.": (
        "custom.test_enqueue_async_task_on_non_async_backend",
        "dummy.test_validate_disallowed_async_task",
        "tasks.test_run_after_in_decorator",
    ),
    "Tasks can be pickled since Django 6.1, and not in the backport.": (
        "tasks.test_pickle_task",
        "tasks.test_pickle_task_result",
        "tasks.test_unpickle_arbitrary_string",
        "tasks.test_unpickle_non_task_object",
    ),
}


def reasons(version):
    """Return the reason for each failing test of a run."""
    table = ALWAYS | (OF_BACKPORT if version == "backport" else {})
    return {test: reason for reason, tests in table.items() for test in tests}
