"""Grid worlds on the device.

The registry imports their ``make``.
"""
