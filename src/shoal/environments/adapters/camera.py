"""Pictures of Gymnasium's MuJoCo robots, by a camera that goes with them."""

from typing import Any


def tracked(env: Any) -> Any:
    """``env.render()``, through the model's camera ``track`` if it has one and nobody chose another.

    The default camera stands still, and whoever has learned to walk leaves its picture.
    """
    inner = env.unwrapped
    renderer = getattr(inner, "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id == -1:
        names = [inner.model.camera(i).name for i in range(inner.model.ncam)]
        if "track" in names:
            renderer.camera_id = names.index("track")
    return env.render()
