"""The files of a run folder: checkpoints, arrays, log, ``run.json``, final evaluation and lock.

Training, runs, studies and reports import them; it is the only package that imports Orbax and TensorBoard.
"""
