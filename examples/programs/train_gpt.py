"""A small GPT in the manner of nanoGPT's train.py: it knows nothing of batchscale.

It prints ``step 250: train loss 2.9, val loss 3.0``, keeps ``ckpt.pt``, and goes on from there with
``--init_from=resume``. Without ``--data`` it learns a text that it makes: a Markov chain of 16
characters, of which the next has 2.0 nats.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, help="a text file; its last tenth validates")
parser.add_argument("--out_dir", type=Path, default=Path("out"))
parser.add_argument("--init_from", choices=["scratch", "resume"], default="scratch")
parser.add_argument("--seed", type=int, default=1337)
parser.add_argument("--batch_size", type=int, default=12)
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--max_iters", type=int, default=1000)
parser.add_argument("--eval_interval", type=int, default=5)
parser.add_argument("--block_size", type=int, default=16)
parser.add_argument("--n_layer", type=int, default=1)
parser.add_argument("--n_head", type=int, default=2)
parser.add_argument("--n_embd", type=int, default=32)


class Block(nn.Module):
    """Attention and an MLP, each behind a norm, added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, width) to the same."""
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    """Logits of the next token at each place."""

    def __init__(self, vocabulary: int, given: argparse.Namespace) -> None:
        super().__init__()
        width = given.n_embd
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(given.block_size, width)
        self.blocks = nn.Sequential(*(Block(width, given.n_head) for _ in range(given.n_layer)))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                added = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(weight, std=0.02 * ((2 * given.n_layer) ** -0.5 if added else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) to (B, T, vocabulary)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def chain(length: int = 50_000, characters: int = 16) -> str:
    """A text of which each character depends on the one before."""
    draw = torch.Generator().manual_seed(0)
    following = torch.softmax(1.5 * torch.randn(characters, characters, generator=draw), dim=1)
    text, at = "", 0
    for uniform in torch.rand(length, generator=draw).tolist():
        at = min(int((following[at].cumsum(0) < uniform).sum()), characters - 1)
        text += chr(ord("a") + at)
    return text


def windows(ids: torch.Tensor, starts: torch.Tensor, length: int) -> torch.Tensor:
    """Sequences of ``length`` tokens and the next, (B, length + 1)."""
    return ids[starts[:, None] + torch.arange(length + 1)]


def loss_of(model: GPT, sequences: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of the next tokens, in nats."""
    return F.cross_entropy(model(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten())


def main() -> None:
    """Train, evaluate and keep a checkpoint as the arguments say."""
    given = parser.parse_args()
    text = given.data.read_text() if given.data else chain()
    known = sorted(set(text))
    ids = torch.tensor([known.index(character) for character in text])
    train, val = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    torch.manual_seed(given.seed)
    model = GPT(len(known), given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate, weight_decay=0.0)
    checkpoint, first = given.out_dir / "ckpt.pt", 0
    if given.init_from == "resume" and checkpoint.exists():
        kept = torch.load(checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"])
        first = kept["iter_num"]
    given.out_dir.mkdir(parents=True, exist_ok=True)
    length = given.block_size
    whole = windows(val, torch.arange(0, len(val) - length, length), length)
    some = windows(train, torch.arange(0, 256 * length, length), length)
    for iter_num in range(first, given.max_iters + 1):
        if iter_num % given.eval_interval == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            kept = {**state, "random": torch.get_rng_state(), "iter_num": iter_num}
            torch.save(kept, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
            with torch.no_grad():
                seen, unseen = loss_of(model, some), loss_of(model, whole)
            print(f"step {iter_num}: train loss {seen:.4f}, val loss {unseen:.4f}", flush=True)
        starts = torch.randint(len(train) - length, (given.batch_size,))
        optimizer.zero_grad()
        loss_of(model, windows(train, starts, length)).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
