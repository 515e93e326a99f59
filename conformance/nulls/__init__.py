"""Correct variations of an engine, whose results differ in rounding only and must never be accused."""
