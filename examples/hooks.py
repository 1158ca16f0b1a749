"""Three callbacks: one ends a run at a score, one logs a new metric, one sends a message at the end (docs/hooks.md)."""

import json
import urllib.request

import jax
import jax.numpy as jnp

import shoal


class StopAtScore(shoal.Callback):
    """Ends the run when the mean return of every seed has reached a score in several rows of the log in succession."""

    def __init__(self, score, rows=3):
        self.score, self.rows, self.reached = score, rows, 0

    def on_metrics(self, context, metrics):
        self.reached = self.reached + 1 if (metrics["return"] >= self.score).all() else 0
        if self.reached >= self.rows:
            context.stop(f"the return was at least {self.score} in {self.rows} rows")


class FixedEntropy(shoal.Callback):
    """Logs the policies' mean entropy, in nats, in situations that stay the same during training."""

    def on_start(self, context):
        algorithm, inspect, situations = context.algorithm, context.algorithm.inspect, 64
        if inspect is None or not algorithm.stochastic:
            raise shoal.InputError("FixedEntropy needs a policy that draws its actions; this one has no entropy.")
        keys = jax.random.split(jax.random.key(0), situations)
        step = jax.vmap(context.run.env.reset)(keys)[1]._replace(metrics=())  # leaves [64, ...]

        def entropy(learner):
            carry = algorithm.initial_carry(situations)
            _, action, extras = algorithm.act(learner, carry, step, jax.random.key(0), False)
            p = inspect(learner, carry, step, action, extras)["probabilities"]  # [64, N, A]
            return -(p * jnp.log(jnp.maximum(p, 1e-9))).sum(-1).mean()

        self.entropy = jax.jit(jax.vmap(entropy))  # over seeds

    def on_metrics(self, context, metrics):
        return {"fixed_entropy": self.entropy(context.learner)}  # [S]


class Notify(shoal.Callback):
    """Posts one line to a web hook, such as Slack's, when a run ends."""

    def __init__(self, url):
        self.url = url

    def on_end(self, context):
        score = context.run.evaluation
        text = f"{context.folder.name}: {context.status} {context.ended or f'at step {context.step:,}'}"
        body = json.dumps({"text": f"{text}, score {score.mean:.2f}" if score else text}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    shoal.train("mappo", "mpe/simple_spread", steps=1e6, seeds=2, callbacks=[StopAtScore(-40.0), FixedEntropy()])
