"""Three training steps on sample_data with JAX, from numpy batches by number.

The batches are a random-access source, so `grain.MapDataset.source(batches)` reads them, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

from framewin import FrameWindowDataset, convert

STEPS = 3
LEARNING_RATE = 0.1


def forecast(weights: jax.Array, inputs: jax.Array) -> jax.Array:
    """Each predicted frame as a mixture of the input frames."""
    return jnp.einsum("pt,bthwc->bphwc", weights, inputs)


def main() -> None:
    """Convert, split, train, and print the loss."""

    @jax.jit
    def step(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> tuple:
        def error(weights: jax.Array) -> jax.Array:
            return jnp.mean(jnp.square(forecast(weights, inputs) - targets))

        loss, gradient = jax.value_and_grad(error)(weights)
        return weights - LEARNING_RATE * gradient, loss

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "clips.zarr"
        convert(Path(__file__).parent.parent / "sample_data", store)
        ds = FrameWindowDataset(store, input_frames=5, predict_frames=5)
        train = ds.split(train=0.8, validation=0.2)["train"]
        batches = train.batches(batch_size=4, shuffle=True, normalize="unit", epochs=1)
        weights = jnp.full((5, 5), 0.2)
        for number in range(STEPS):
            weights, loss = step(weights, *batches[number])
            print(f"jax: step {number}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
