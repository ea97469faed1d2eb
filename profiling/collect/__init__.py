"""Recorders: each runs something and returns a recording."""
