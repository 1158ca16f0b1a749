"""Tuning: the search of hyper-parameters that the part ``[tuning]`` of a study file describes.

* :mod:`shoal.tuning.draws` and :mod:`shoal.tuning.bayesian` propose the values of trials.
* :mod:`shoal.tuning.traced` finds which hyper-parameters can be arrays of one compiled program, and makes an algorithm
  whose learner carries their values; :mod:`shoal.tuning.structures` groups trials by the other hyper-parameters.
* :mod:`shoal.tuning.population` trains and evaluates the trials of one structure in one program.
* :mod:`shoal.tuning.search` runs the rungs of successive halving and stores its state after each step;
  :mod:`shoal.tuning.running` searches for every method of a study, and writes records and presets.

The parts that need no training are in :mod:`shoal.studies`: the file, the methods, records, and pages.
"""
