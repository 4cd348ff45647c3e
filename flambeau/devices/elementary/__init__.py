"""Elementary and special functions written with arithmetic, bits and selects alone."""
