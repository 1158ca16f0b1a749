"""What a run trains: the configuration from flags, files, presets and defaults.

``resolve`` gives the whole configuration of a run; ``config_files`` reads files. Studies and reports use
both.
"""
