"""The recording format: its schema, store and export."""
