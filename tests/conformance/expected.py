"""Those of Django's tests that ATPBackend does not pass, each with the reason.

A test is called ``suite.test``. The suites are Django's four modules; that of ImmediateBackend is
run twice: ``drained`` after a daemon has run the task, ``inline`` on ``atp.testing.InlineBackend``.
"""

OTHER_CLASS = "It asserts the class of the backend."
HAS_RESULTS = "It asserts that results cannot be had; they can."

ALWAYS = {
    "tasks.test_using_correct_backend": OTHER_CLASS,
    "tasks.test_get_backend": OTHER_CLASS,
    "dummy.test_using_correct_backend": OTHER_CLASS,
    "dummy.test_refresh_result": "It writes into DummyBackend's list of results; here they are "
    "read from the queue.",
    "dummy.test_refresh_result_async": "It writes into DummyBackend's list of results; here they "
    "are read from the queue.",
    "custom.test_backend_does_not_support_priority": "It asserts that a backend has no priorities; "
    "ATP's has.",
    "custom.test_no_enqueue": "It asserts that a backend that defines no enqueue is abstract; "
    "ATP's defines it.",
    "drained.test_using_correct_backend": OTHER_CLASS,
    "drained.test_cannot_get_result": HAS_RESULTS,
    "drained.test_cannot_refresh_result": HAS_RESULTS,
    "drained.test_cannot_pass_run_after": "It asserts that run_after is refused; it is taken.",
    "drained.test_throws_keyboard_interrupt": "A KeyboardInterrupt of a task ends its attempt in "
    "the worker; nobody who enqueued it waits for it.",
    "drained.test_doesnt_wait_until_transaction_commit_by_default": "It asserts that a task has "
    "run before the transaction that enqueued it is committed; no daemon sees it before.",
    "inline.test_using_correct_backend": OTHER_CLASS,
    "inline.test_cannot_get_result": HAS_RESULTS,
    "inline.test_cannot_refresh_result": HAS_RESULTS,
    "inline.test_cannot_pass_run_after": "It asserts that run_after is refused; it is taken.",
    "inline.test_doesnt_wait_until_transaction_commit_by_default": "It asserts that a task has "
    "run before the transaction that enqueued it is committed; InlineBackend runs it then.",
}

OTHER_WORDS = "The backport says it in other words."
NO_PICKLES = "Tasks can be pickled since Django 6.1, and not in the backport."

OF_BACKPORT = {
    "custom.test_enqueue_async_task_on_non_async_backend": OTHER_WORDS,
    "dummy.test_validate_disallowed_async_task": OTHER_WORDS,
    "tasks.test_pickle_task": NO_PICKLES,
    "tasks.test_pickle_task_result": NO_PICKLES,
    "tasks.test_unpickle_arbitrary_string": NO_PICKLES,
    "tasks.test_unpickle_non_task_object": NO_PICKLES,
    "tasks.test_run_after_in_decorator": OTHER_WORDS,
}

BY_VERSION: dict[str, dict[str, str]] = {"6.1": {}, "6.0": {}, "backport": OF_BACKPORT}


def reasons(version):
    """Return the reason by test, for a run."""
    return ALWAYS | BY_VERSION[version]
