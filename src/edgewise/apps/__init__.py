"""The programs on top of the library: the command line, the run reports and the demonstration."""
