"""What holds for all of the daemon's tests."""

import signal

# A shell that runs the tests in the background has them ignore SIGINT, and what
# they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
