"""The messages, the memory and the tokens that the processes of a daemon share."""
