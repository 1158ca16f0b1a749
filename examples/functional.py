"""Train with two learning rates and four keys in one program of your own: python examples/functional.py"""

import jax
import jax.numpy as jnp

import shoal


def main(steps: float = 2e5) -> None:
    train = shoal.make_train("mappo", "mpe/simple_spread", steps=steps, num_envs=16)

    def learn(key, rate):
        state = train.init(key, {"learning_rate": rate})
        state, (metrics, ended) = jax.lax.scan(lambda state, _: train.update(state), state, length=train.num_updates)
        returns = train.spec.scores(ended.returns) / ended.episodes  # [updates]; NaN where no episode ended
        return train.evaluate(state, key).scores.mean(), returns, metrics["value_loss"]

    keys, rates = jax.random.split(jax.random.key(0), 4), jnp.array([3e-4, 1e-3])
    every = jax.vmap(jax.vmap(learn, (0, None)), (None, 0))  # [rates, keys]
    scores, returns, losses = jax.jit(every)(keys, rates)
    print("scores", scores.mean(1))
    print("last returns", returns[..., -1].mean(1), "last losses", losses[..., -1].mean(1))


if __name__ == "__main__":
    main()
