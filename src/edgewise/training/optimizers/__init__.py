"""Optimisers, schedules, samplers of the posterior and weight averages."""
