"""The diagnosis of a recording: anomalies with their terms, causes and answers."""
