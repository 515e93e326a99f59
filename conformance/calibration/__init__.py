"""Calibration: what correct variations reach on a device, and the limits that follow from it."""
