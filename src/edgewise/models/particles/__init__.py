"""Models of particles: forecasts, potentials and simulators."""
