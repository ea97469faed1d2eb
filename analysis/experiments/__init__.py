"""Experiments on what a diagnosis finds: which one to run next, what their rows say, and the answer that follows."""
