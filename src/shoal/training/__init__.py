"""Training: the compiled program, the loop around it, evaluation, and the layout over devices."""
