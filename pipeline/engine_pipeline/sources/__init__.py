"""Where weights and calibration data come from: one adapter per kind of place."""
