"""Reports of runs and studies as pages."""
