"""Tests of contracts: schemas of inputs and outputs, and the check of inputs in all interfaces."""
