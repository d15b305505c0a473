"""The verbs of the queue, a module for each noun; :mod:`atp.queue` lists them."""
