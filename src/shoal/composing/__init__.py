"""What makes one algorithm out of others: sides, reward normalisation, and preparation by experience."""
