"""One adapter per engine: the only code that imports an engine."""
