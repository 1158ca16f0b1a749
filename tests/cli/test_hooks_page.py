"""The callbacks of docs/hooks.md stand there as in examples/hooks.py, and do what the page says."""

import http.server
import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hooks
import shoal
from shoal.errors import InputError
from shoal.storage import log
from support import trained

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_examples_as_they_are() -> None:
    source = (ROOT / "examples" / "hooks.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    classes = re.split(r"\n\n\n(?=class |if __name__)", source)[1:-1]
    assert len(classes) == 3 and all(any(one in block for block in blocks) for one in classes)


def test_the_examples_do_what_the_page_says(tmp_path: Path) -> None:
    posted: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        notify = hooks.Notify(f"http://127.0.0.1:{server.server_port}")
        flags: dict[str, Any] = trained.SMALL | {"steps": 24 * 24, "eval_episodes": 3}
        callbacks = [hooks.StopAtScore(-1000.0, rows=2), hooks.FixedEntropy(), notify]
        with trained.one_program():
            run = shoal.train("mappo", "toys:busy", folder=tmp_path / "spread", callbacks=callbacks, **flags)
        server.shutdown()
        thread.join()
    rows = log.read_log(run.folder)
    assert len(rows) == 2 and run.ended == "at step 48 of 576: the return was at least -1000.0 in 2 rows"
    entropies = np.array([row["fixed_entropy"] for row in rows])
    most = np.log(max(run.spec.action_dims))
    assert entropies.shape == (2, 2) and (entropies > 0).all() and (entropies <= most).all()
    assert run.evaluation is not None
    assert posted == [{"text": f"spread: finished {run.ended}, score {run.evaluation.mean:.2f}"}]


def test_the_entropy_of_a_policy_that_has_none_is_refused_before_training(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"folder": tmp_path / "x", "callbacks": [hooks.FixedEntropy()], "progress": False}
    with pytest.raises(InputError, match="this one has no entropy"):
        shoal.train("pqn_vdn", "toys:busy", **flags)
