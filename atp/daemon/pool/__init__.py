"""The dispatcher's view of its workers, and of the attempts that they run."""
