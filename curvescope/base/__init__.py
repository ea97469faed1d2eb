"""What every room uses: errors, counts, escaping, masking, plugins, and the door to torch."""
