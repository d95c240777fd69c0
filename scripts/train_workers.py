"""Three training steps on sample_data in two processes that train one model together.

    scripts/train_workers.py [FOLDER]

starts itself twice, with TF_CONFIG as it would be on two machines. Each process maps the store and
takes its share of every step by `num_shards=` and `shard_index=`; all together train on the windows
that one process would.
With FOLDER, each leaves there what it trained on and its weights.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = 3
WORKERS = 2
BATCH_SIZE = 8  # of all workers together
POLL_SECONDS = 0.1


def train(store: Path, folder: Path | None) -> None:
    """Train as one of the workers of TF_CONFIG, and print the loss of each step."""
    import keras
    import tensorflow as tf

    from framewin import FrameWindowDataset

    # It must come before anything else of TensorFlow, and waits for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    config = json.loads(os.environ["TF_CONFIG"])
    index, count = config["task"]["index"], len(config["cluster"]["worker"])

    ds = FrameWindowDataset(store, input_frames=5, predict_frames=5)
    order = {
        "batch_size": BATCH_SIZE // count,
        "shuffle": True,
        "seed": 0,
        "drop_remainder": True,
        "num_shards": count,
        "shard_index": index,
    }
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((5, *ds.frame_format.shape)),
                keras.layers.Conv3D(4, 3, padding="same", activation="relu"),
                keras.layers.Conv3D(1, 3, padding="same", activation="sigmoid"),
            ]
        )
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)

    def replica(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
            loss = error / strategy.num_replicas_in_sync
        # The optimizer adds up the gradients of all workers.
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(replica, args=(inputs, targets)), axis=None)

    seen = []
    for number, (inputs, targets) in enumerate(
        ds.to_tf_dataset(**order, normalize="unit").take(STEPS)
    ):
        loss = float(step(inputs, targets))
        seen.append(inputs.numpy())
        # In one piece, for all workers write to the same place.
        print(f"worker {index}: step {number}, loss {loss:.4f}\n", end="", flush=True)
    if folder is not None:
        weights = {f"weight{k}": value for k, value in enumerate(model.get_weights())}
        np.savez(folder / f"worker-{index}.npz", inputs=np.stack(seen), **weights)


def start(store: Path, folder: Path | None) -> None:
    """Run the workers, each in a process of its own, and wait for them."""
    ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]
    for port in ports:
        port.close()
    processes = []
    for index in range(WORKERS):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        command = [sys.executable, __file__, *([str(folder)] if folder else [])]
        environment = {**os.environ, "TF_CONFIG": config, "FRAMEWIN_STORE": str(store)}
        processes.append(subprocess.Popen(command, env=environment))
    # One that has failed is waited for by the others without end.
    while None in (codes := [process.poll() for process in processes]) and not any(codes):
        time.sleep(POLL_SECONDS)
    for process in processes:
        process.kill()
        process.wait()
    if any(codes):
        sys.exit(f"a worker failed: exit codes {codes}")


def main() -> None:
    """Convert and start the workers; or be one of them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if "FRAMEWIN_STORE" in os.environ:
        train(Path(os.environ["FRAMEWIN_STORE"]), folder)
        return
    from framewin import convert

    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "clips.zarr"
        convert(Path(__file__).parent.parent / "sample_data", store)
        start(store, folder)


if __name__ == "__main__":
    main()
