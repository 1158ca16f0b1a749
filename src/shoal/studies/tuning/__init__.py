"""Tuning: the search of hyper-parameters that the part ``[tuning]`` of a study file describes.

Other packages import :func:`shoal.studies.tuning.running.tune`; studies also import its file and records.

* :mod:`shoal.studies.tuning.proposals` proposes the values of trials.
* :mod:`shoal.training.traced` finds which hyper-parameters can be arrays of one compiled program, and makes an
  algorithm whose learner carries their values; :mod:`shoal.studies.tuning.structures` groups trials by the other
  hyper-parameters, and trains and evaluates the trials of one structure in one program.
* :mod:`shoal.studies.tuning.search` runs the rungs of successive halving and stores its state after each step;
  :mod:`shoal.studies.tuning.running` searches for every method of a study, and writes records and presets.

The parts that need no training are in :mod:`shoal.studies`: the file, the methods, records, and pages.
"""
