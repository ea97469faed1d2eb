"""The experiment loop: conditions, interleaved rounds, protocol, progress, resuming, processes and
ranks.
"""
