"""The causes: a function each, which finds its Reasons in the facts. No database, no clock."""
