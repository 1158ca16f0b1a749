"""Rendering of Gymnasium's MuJoCo robots with a tracking camera."""

from typing import Any


def tracked(env: Any) -> Any:
    """``env.render()`` with the model's camera ``track``, if it exists and no other camera was chosen.

    The default camera does not move, so that a walking robot leaves the picture.
    """
    inner = env.unwrapped
    renderer = getattr(inner, "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id == -1:
        names = [inner.model.camera(i).name for i in range(inner.model.ncam)]
        if "track" in names:
            renderer.camera_id = names.index("track")
    return env.render()
