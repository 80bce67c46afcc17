"""Who runs a call: the table of candidates, the cost model, and the measured speeds."""
