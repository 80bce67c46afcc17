"""`edgewise bench`: cases, contenders, and a harness that times them side by side."""
