"""Calibration: what steps cost, how that is known, how wrong it may be."""
