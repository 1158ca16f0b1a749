"""Studies: grids of runs that a file describes, their records, and the pages of results made from records.

The command line and reports import them; ``compare`` compares runs, ``tuning`` searches hyper-parameters.

* :mod:`shoal.studies.study_file` and :mod:`shoal.studies.combinations` read and check the file, without JAX.
* :mod:`shoal.studies.plan` gives every run its whole configuration.
* :mod:`shoal.studies.execution` runs one cell and returns its record, also in another process;
  :mod:`shoal.studies.running` checks all runs together with their environments, and executes the missing ones.
* :mod:`shoal.studies.results` makes the page of results only from records.
"""
