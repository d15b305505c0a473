"""The isolation of attempts: an attempt finds its worker as the first one found it."""
