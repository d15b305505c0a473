"""The chores of a daemon: what it does every so often, beside its Tasks."""
