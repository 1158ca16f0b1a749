"""Trained policies as files that other programs run: ONNX models and serialised StableHLO, each with a description.

``function`` states a policy as one pure function, ``program`` and ``onnx`` translate it, and ``files`` writes. The
package knows environments' wrappers and algorithms' types; it imports neither runs nor training.
"""
