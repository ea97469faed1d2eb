"""Experiments: which one to run next, replays of recorded operators, factors, and the loop that
confirms causes.
"""
