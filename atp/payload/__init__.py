"""Serialization of inputs and outputs, and the binding of inputs to a handler's signature."""
