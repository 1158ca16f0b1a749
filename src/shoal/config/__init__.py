"""What a run trains: the configuration from flags, files, presets and defaults.

``resolve`` gives the whole configuration of a run; ``merge``, ``config_files`` and ``preset_files`` are its
stages, which studies and reports also use.
"""
