"""A Lightning module; ReportCallback is the line that a sweep needs."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from batchscale.integrations.lightning import ReportCallback


class Digits(LightningModule):
    """Softmax regression."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr, self.layer = lr, torch.nn.Linear(64, 10)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """The loss of a batch."""
        x, y = batch
        return F.cross_entropy(self.layer(x), y)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        """Log the error of a batch, from which Lightning makes the mean."""
        x, y = batch
        self.log("val_error", (self.layer(x).argmax(1) != y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def main() -> None:
    """Train it as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--max_steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    seed_everything(given.seed)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
    train, held_out = torch.utils.data.random_split(
        data, [1297, 500], generator=torch.Generator().manual_seed(0)
    )
    trainer = Trainer(
        max_steps=given.max_steps,
        val_check_interval=5,
        check_val_every_n_epoch=None,
        callbacks=[ReportCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(
        Digits(given.lr),
        DataLoader(train, given.batch_size, shuffle=True, drop_last=True),
        DataLoader(held_out, 500),
    )


if __name__ == "__main__":
    main()
