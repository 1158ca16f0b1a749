"""What a run trains: the configuration from flags, files, presets and defaults.

``resolve`` gives the whole configuration of a run; ``config_files`` and ``preset_files`` read files. Studies and
reports use all three.
"""
