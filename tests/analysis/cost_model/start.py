"""A model before its fit."""

import json

from curvescope.analysis.cost_model.constants import PARAMETERS, Constants


def start_constants():
    """Every constant at its starting value."""
    parameters = json.loads(PARAMETERS.read_text("utf-8"))
    return Constants({name: parameter["start"] for name, parameter in parameters.items()})
