"""Draws results for a terminal, an HTML page or a notebook; formats numbers, once, at the edge."""
