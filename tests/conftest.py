"""Two CPU devices for every test, so that sharding is exercised; shape annotations are checked at run time."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 2)

install_import_hook("shoal", "beartype.beartype")
