"""The chores of a daemon: its regular work beside the Tasks, as renewing, sweeping and purging."""
