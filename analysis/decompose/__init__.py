"""Splits step times exactly: exclusive time, functionals, statistics and terms."""
