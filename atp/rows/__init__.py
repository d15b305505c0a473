"""The tables, a module for each noun; :mod:`atp.models` lists them.

Some foreign keys have ``db_constraint`` off. Whoever writes such a row writes or locks the
row that it refers to in the same statement, so the database need not look it up again.
"""
