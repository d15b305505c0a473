"""Tailers: Types whose attempts read a source outside of the queue, and enqueue its records."""
