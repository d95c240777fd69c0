"""Three training steps on sample_data with torch, from a loader of whole batches."""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path

import torch

from framewin import Augment, FrameWindowDataset, convert

STEPS = 3


def main() -> None:
    """Convert, split, train, and print the loss."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "clips.zarr"
        convert(Path(__file__).parent.parent / "sample_data", store)
        ds = FrameWindowDataset(store, input_frames=5, predict_frames=5)
        parts = ds.split(train=0.8, validation=0.2)
        loader = parts["train"].to_torch_loader(
            batch_size=4,
            shuffle=True,
            normalize="unit",
            augment=Augment(flip_horizontal=True, rotation=10),
            channels_first=True,
        )
        # Time is Conv3d's depth here, so channels come first of all.
        model = torch.nn.Sequential(
            torch.nn.Conv3d(1, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv3d(8, 1, 3, padding=1),
        )
        optimizer = torch.optim.Adam(model.parameters())
        for step, (inputs, targets) in enumerate(islice(loader, STEPS)):
            forecast = model(inputs.transpose(1, 2)).transpose(1, 2)
            loss = torch.nn.functional.mse_loss(forecast, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"torch: step {step}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
