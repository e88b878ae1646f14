"""The diagonal of the Hessian, estimated with one Hessian-vector product (Hutchinson 1989).

For z of independent standard normal entries the mean of z * (H z) is the diagonal of H, the Hessian
of the mean loss over the global batch. H z is the derivative of the gradient's product with z; it
is a sum over examples, so that micro-batches and data ranks add up to that of the whole batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.errors import ExperimentError
from experiments.parallel.base import ForwardPass
from experiments.plan import Trial
from experiments.seeds import derive
from experiments.training.study_context import StudyContext


class HessianDiagonal:
    """Estimates for an optimizer that takes them, every ``period`` steps from the first on."""

    def __init__(
        self,
        context: StudyContext,
        trial: Trial,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        period: int,
    ) -> None:
        """
        Raises:
            ExperimentError: the layout cuts the model, or the precision scales the loss.
        """
        self.context, self.trial, self.model, self.period = context, trial, model, period
        self.order = [p for group in optimizer.param_groups for p in group["params"]]
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        layout, name = context.study.layout, context.optimizer.label
        if layout.dimensions or layout.name not in (None, "data"):
            raise ExperimentError(
                f"optimizer {name} needs Hessian-vector products, which take the whole model on "
                "each rank",
                hint="data parallelism alone: workers, without a layout",
            )
        if context.precision.scales:
            raise ExperimentError(
                f"optimizer {name} needs Hessian-vector products, and precision float16 scales "
                "the loss",
                hint="precision: bfloat16",
            )

    @classmethod
    def of_trial(
        cls, context: StudyContext, trial: Trial, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> HessianDiagonal | None:
        """What the trial's optimizer needs; ``None``: it takes no estimates."""
        values = context.optimizer.arguments_in(trial.metaparameters)
        period = context.optimizer.hessian_period(values)
        return None if period is None else cls(context, trial, model, optimizer, period)

    def of(self, step: int, passes: Callable[[], Iterable[ForwardPass]]) -> list[Tensor] | None:
        """The estimate at the model's weights: a tensor a parameter, in the order of the
        optimizer's groups; ``None`` where no estimate is due.

        Args:
            step: the number of updates before this one.
            passes: of this rank's share of the global batch.

        Raises:
            ExperimentError: an operation of the model has no second derivative in torch.
        """
        if step % self.period:
            return None
        draws = self._draws(step)
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        with torch.enable_grad(), _twice_differentiable(self.model):
            products = self._products(passes(), [*draws.values()])
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])
        if self.context.layout.ranks.size > 1:
            self.context.layout.reduce_gradients(products)
        diagonal = {
            id(self._trained[name]): product.mul_(z)
            for (name, z), product in zip(draws.items(), products, strict=True)
        }
        return [diagonal[id(p)] for p in self.order]

    def _draws(self, step: int) -> dict[str, Tensor]:
        """z by the parameters' names: the same on every rank and every device."""
        generator = torch.Generator().manual_seed(derive(self.trial.seed, "hessian", step))
        return {
            name: torch.randn(p.shape, generator=generator).to(p)
            for name, p in self._trained.items()
        }

    def _products(self, passes: Iterable[ForwardPass], draws: list[Tensor]) -> list[Tensor]:
        """H z of this rank's share; zeros where the gradient does not depend on a parameter."""
        parameters = [*self._trained.values()]
        products = [torch.zeros_like(p) for p in parameters]
        for each in passes:
            losses = each.loss(self.model)
            loss = (losses * each.weights(losses.dtype)).sum()
            try:
                terms = _product(loss, parameters, draws)
            except (NotImplementedError, RuntimeError) as error:
                raise ExperimentError(
                    f"optimizer {self.context.optimizer.label}: the gradient cannot be "
                    f"differentiated again: {str(error).splitlines()[0]}",
                    hint="leave such an operation, or technique, out; or a first-order optimizer",
                ) from error
            for product, part in zip(products, terms, strict=True):
                product.add_(part)
        return products


def _product(loss: Tensor, parameters: Sequence[Tensor], draws: Sequence[Tensor]) -> list[Tensor]:
    """The derivative of the gradient's product with ``draws``."""
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    pairs = [(g, z) for g, z in zip(gradients, draws, strict=True) if g.requires_grad]
    if not pairs:  # the loss is linear
        return [torch.zeros_like(p) for p in parameters]
    of_pairs = [list(each) for each in zip(*pairs, strict=True)]
    return list(torch.autograd.grad(of_pairs[0], parameters, of_pairs[1], materialize_grads=True))


@contextlib.contextmanager
def _twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Kernels that have a second derivative: not those of fused attention and fused LSTMs."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    with contextlib.ExitStack() as kernels:
        kernels.enter_context(sdpa_kernel(SDPBackend.MATH))
        if recurrent:
            kernels.enter_context(torch.backends.cudnn.flags(enabled=False))
            kernels.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield
