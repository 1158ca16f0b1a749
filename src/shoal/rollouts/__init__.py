"""Roll-outs make trajectories; they know environments and an ``act`` function, and no algorithm."""
