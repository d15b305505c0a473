"""Contracts: schemas of inputs and outputs, and the check of inputs on each surface."""
