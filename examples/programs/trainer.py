"""A small GPT-2 by a Trainer of transformers; ReportCallback is the line that a sweep needs."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

from batchscale.integrations.transformers import ReportCallback

LENGTH, TOKENS = 16, 32


def counting(seed: int, size: int) -> list[dict[str, torch.Tensor]]:
    """Sequences that count on from a number by a stride."""
    draw = torch.Generator().manual_seed(seed)
    first = torch.randint(TOKENS, (size, 1), generator=draw)
    stride = torch.randint(1, 4, (size, 1), generator=draw)
    rows = (first + stride * torch.arange(LENGTH)) % TOKENS
    return [{"input_ids": row, "labels": row} for row in rows]


def main() -> None:
    """Train it as the arguments of the Trainer say."""
    parser = HfArgumentParser(TrainingArguments)  # type: ignore[arg-type]
    (arguments,) = parser.parse_args_into_dataclasses()
    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2)
    torch.manual_seed(arguments.seed)
    Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=counting(0, 4096),
        eval_dataset=counting(1, 256),
        callbacks=[ReportCallback()],
    ).train()


if __name__ == "__main__":
    main()
