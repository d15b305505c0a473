"""What can be done to the queue, once for all surfaces."""
