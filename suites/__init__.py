"""The suites: one file per task, written against the abstract runner; no device, engine or kernel is named here."""
