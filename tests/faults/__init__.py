"""Conversions under injected faults: nothing is ever lost, and a rerun ends with the same bytes."""
