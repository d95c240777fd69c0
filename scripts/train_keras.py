"""Three training steps on sample_data with Keras on TensorFlow, augmented in the graph."""

from __future__ import annotations

import tempfile
from pathlib import Path

import keras

from framewin import Augment, FrameWindowDataset, convert

STEPS = 3


def main() -> None:
    """Convert, split, train, and print the loss."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "clips.zarr"
        convert(Path(__file__).parent.parent / "sample_data", store)
        ds = FrameWindowDataset(store, input_frames=5, predict_frames=5, where="motion > 0.5")
        parts = ds.split(train=0.8, validation=0.2)
        augment = Augment(flip_horizontal=True, flip_vertical=True, turns=True)
        batches = parts["train"].to_tf_dataset(
            batch_size=4, shuffle=True, normalize="unit", augment=augment
        )
        model = keras.Sequential(
            [
                keras.Input((5, *ds.frame_format.shape)),
                keras.layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True),
                keras.layers.Conv3D(1, (1, 3, 3), padding="same", activation="sigmoid"),
            ]
        )
        model.compile(optimizer="adam", loss="mse")
        history = model.fit(batches, epochs=1, steps_per_epoch=STEPS, shuffle=False, verbose=0)
        print(f"keras: {STEPS} steps, loss {history.history['loss'][0]:.4f}")


if __name__ == "__main__":
    main()
