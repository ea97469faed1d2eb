"""Recorders run something and give back its rows; each ends in the tables of `profiling.schema`."""
