"""Explain why an Instance does not run, who can resolve the cause, and when it will start."""
