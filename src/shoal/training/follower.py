"""What the processes of a run on several hosts do besides the first one (:mod:`shoal.training.hosts`)."""

import jax
import numpy as np

from shoal.training.hosts import Crew, Order, gathered
from shoal.training.program import Program, TrainState, placed_state
from shoal.training.stopping import Stop, ready
from shoal.training.trainer import Trainer


def follow(trainer: Trainer, crew: Crew) -> None:
    """Do what the leader orders until the run ends. Nothing is written.

    Args:
        trainer: made from the same configuration as the leader's; its program is used, and its loop does not run.
        crew: the processes of the run.
    """
    program: Program = trainer.program
    state: TrainState | None = None
    ahead = advance = None
    stop = Stop(lambda sentence: None)
    with stop.listening():
        while True:
            order, number = crew.next(stop.number if stop.asked else 0)
            match order:
                case Order.END:
                    crew.end()
                    return
                case Order.AHEAD:
                    assert program.ahead is not None
                    ahead = program.ahead()
                case Order.INIT:
                    state = program.init(trainer.layout.keys(trainer.settings.seed))
                case Order.RESTORE:
                    found = trainer.checkpoints.restore(program.template(), number)[0]
                    state = placed_state(found, trainer.layout)
                case Order.START:
                    assert state is not None
                    advance = ahead() if ahead else program.start(state)
                case Order.ADVANCE:
                    assert advance is not None and state is not None
                    state, rows = advance(state, np.int32(number))
                    ready(rows)
                case Order.GATHER:
                    gathered(jax.tree.leaves(state)[number])
