"""Answers to questions about the queue: nothing here writes."""
