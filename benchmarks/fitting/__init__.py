"""Fits the cost model's constants to published times, and predicts what was left out: for `cost_model.py`."""
