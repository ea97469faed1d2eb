"""What experiments prove: outcomes of factors, and verdicts on causes."""
