"""Tailers, which read records from an external source and enqueue Instances for them."""
