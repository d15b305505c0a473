"""Dead letters: the Types of ATP itself that redrive, cancel and delete what matches."""
