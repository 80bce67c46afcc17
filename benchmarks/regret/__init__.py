"""How good the planner's choices are: on a grid of configurations, and on some that are drawn at random."""
