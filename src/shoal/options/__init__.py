"""Options: conversion of values, flags from dataclasses and back, and names in other libraries.

Every package may import them; they do not import JAX.
"""
