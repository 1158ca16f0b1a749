"""k-means and the Davies–Bouldin index, for few points."""

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.vq import ClusterError, kmeans2

STARTS = 10
"""Runs of k-means from different starts; the result has the smallest sum of squared distances."""


def kmeans(points: Float[np.ndarray, "N Z"], clusters: int, seed: int) -> tuple[int, ...] | None:
    """Each point's cluster, numbered in the order in which they first appear; None where there is no solution.

    k-means++ (Arthur & Vassilvitskii 2007) from :data:`STARTS` starts. There is no solution for fewer
    distinct points than clusters, or if every start leaves a cluster empty. With as many clusters as points, each point
    is one.
    """
    if clusters == len(points):
        return tuple(range(clusters))
    if clusters > len(np.unique(points, axis=0)):
        return None
    best, tightest = None, np.inf
    for rng in np.random.default_rng(seed).spawn(STARTS):
        try:
            centres, labels = kmeans2(points, clusters, iter=50, minit="++", missing="raise", rng=rng)
        except ClusterError:
            continue
        spread = np.square(points - centres[labels]).sum()
        if spread < tightest:
            best, tightest = labels, spread
    return None if best is None else in_order(best)


def in_order(labels: Int[np.ndarray, " N"]) -> tuple[int, ...]:
    """The same clusters, numbered 0, 1, … in the order in which they first appear."""
    seen = list(dict.fromkeys(labels.tolist()))
    return tuple(seen.index(label) for label in labels.tolist())


def centres(points: Float[np.ndarray, "N Z"], labels: tuple[int, ...]) -> Float[np.ndarray, "N Z"]:
    """Each point's cluster centre."""
    member = np.eye(max(labels) + 1)[list(labels)]
    return (member @ (member.T @ points / member.sum(0)[:, None])).astype(points.dtype)


def davies_bouldin(points: Float[np.ndarray, "N Z"], labels: tuple[int, ...]) -> float:
    """Mean over clusters of the worst (s_i + s_j) / d_ij: mean distances from the centres over the centres' distance.

    Smaller is better. It needs at least two clusters, and falls to 0 where each has one point.

    Source: Davies & Bouldin 1979, A cluster separation measure, definition 5 with p = q = 2 in the form in common use.
    """
    where = np.array(labels)
    middle = np.stack([points[where == k].mean(0) for k in range(where.max() + 1)])
    spread = np.array([np.linalg.norm(points[where == k] - m, axis=1).mean() for k, m in enumerate(middle)])
    apart = np.linalg.norm(middle[:, None] - middle, axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float(((spread[:, None] + spread) / apart).max(1).mean())
