"""Serialize, check and mask the inputs and outputs of handlers."""
