"""Recorded operators, rebuilt and run alone, as recorded or with one factor changed."""
