"""Recordings of many ranks: their differences, stragglers and time spent waiting."""
