"""What a step runs: networks, their inputs, the training step and its annotation."""
