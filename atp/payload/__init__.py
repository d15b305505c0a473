"""Inputs and outputs as they are stored."""
