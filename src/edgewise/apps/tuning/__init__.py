"""`edgewise tune`: the options of a recipe that validate best, by Optuna; the test data are read at the end."""
