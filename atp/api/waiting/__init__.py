"""The waiting of clients for the end of an Instance: ``?wait=``."""
