"""Answers about the queue; nothing here writes."""
