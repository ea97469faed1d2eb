"""The recording format: its schema, store, export and remote stores."""
