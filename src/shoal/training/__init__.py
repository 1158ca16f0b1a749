"""Training: the compiled program, the loop around it, evaluation, and where the work goes."""
