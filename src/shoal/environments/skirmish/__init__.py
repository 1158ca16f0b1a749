"""``skirmish/…``: SMAC's maps and interface on an engine of its own, compiled with the policy, without StarCraft."""
