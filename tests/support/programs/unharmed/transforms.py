"""Programs that transform models: python transforms.py vmap|hessian|script|export|fx|subclass|parametrized"""

import sys

import torch
from torch import func, fx, nn
from torch.nn.utils import parametrizations, prune

STEPS = 36
torch.set_num_threads(1)
torch.manual_seed(0)


def built():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def batch(number, *shape):
    return torch.randn(*(shape or (4, 8)), generator=torch.Generator().manual_seed(number))


def train(call, parameters, first=0, last=STEPS):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for number in range(first, last):
        optimizer.zero_grad()
        loss = call(batch(number)).square().mean()
        loss.backward()
        optimizer.step()
        print(number, f"{float(loss):.8f}")


def vmap():
    """An ensemble trained by vmap over grad, without an optimizer."""
    models = [built() for _ in range(3)]
    base = built().to("meta")
    weights, buffers = func.stack_module_state(models)

    def loss(weights, buffers, x):
        return func.functional_call(base, (weights, buffers), (x,)).square().mean()

    for number in range(STEPS):
        slopes, losses = func.vmap(func.grad_and_value(loss), in_dims=(0, 0, None))(weights, buffers, batch(number))
        weights = {name: (value - 0.1 * slopes[name]).detach() for name, value in weights.items()}
        print(number, [f"{one:.8f}" for one in losses.tolist()])


def hessian():
    """Second derivatives, forward over reverse, and a Jacobian product."""
    model = built()
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def out(x):
        return func.functional_call(model, weights, (x,)).sum()

    for number in range(STEPS):
        x = batch(number, 8)
        value, change = func.jvp(out, (x,), (torch.ones(8),))
        print(number, f"{func.hessian(out)(x).sum():.7f} {func.jacrev(out)(x).sum():.7f} {value:.7f} {change:.7f}")


def script():
    """A scripted model, saved and loaded, then traced, both trained."""
    model = torch.jit.script(built())
    train(model, model.parameters(), 0, 18)
    traced = torch.jit.trace(built(), batch(0))
    train(traced, traced.parameters(), 18)
    print(str(model.graph).count("CallMethod"), sum(1 for _ in traced.graph.nodes()), type(model[0]).__name__)


def export():
    """Exported once before the training, in the middle of it, and after."""
    model = built()
    for first in range(0, STEPS, 12):
        exported = torch.export.export(model, (batch(0),))
        print([node.name for node in exported.graph.nodes], exported.graph_signature.user_outputs)
        train(model, model.parameters(), first, first + 12)
    print(f"{exported.module()(batch(1)).sum().item():.8f}")


def traced_by_fx():
    """torch.fx replaces nn.Module.__call__ while it traces; here in the midst of steps."""
    model = built()
    for first in range(0, STEPS, 6):
        graph = fx.symbolic_trace(model)
        print([(node.op, str(node.target)) for node in graph.graph.nodes])
        train(graph, graph.parameters(), first, first + 6)
    print(graph.code.strip().splitlines()[-1])


class Tagged(torch.Tensor):
    """A tensor that counts the functions of torch it meets."""

    met: dict = {}

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", repr(function))
        cls.met[name] = cls.met.get(name, 0) + 1
        return super().__torch_function__(function, types, args, kwargs or {})


def subclass():
    model = built()
    train(lambda x: model(x.as_subclass(Tagged)), model.parameters())
    print(sorted(Tagged.met.items()))


def parametrized():
    """Weights that modules compute: orthogonal, weight norm, pruned, and lazy ones."""
    model = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    model(batch(0))
    parametrizations.weight_norm(model[0])
    parametrizations.orthogonal(model[2])
    prune.l1_unstructured(model[4], "weight", amount=0.5)
    train(model, model.parameters())
    print(type(model[2]).__name__, sorted(model.state_dict()), len(model[4]._forward_pre_hooks))


globals()[{"fx": "traced_by_fx"}.get(sys.argv[1], sys.argv[1])]()
