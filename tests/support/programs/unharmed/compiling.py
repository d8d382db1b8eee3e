"""Programs that compile: python compiling.py breaks|shapes|autograd|step|inductor|stance|fixed|…"""

import sys

import torch
from torch import nn

STEPS = 30
torch.set_num_threads(1)
torch.manual_seed(0)


class Broken(nn.Module):
    """A graph break on purpose, between two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        hidden = self.up(x).relu()
        torch._dynamo.graph_break()
        return self.down(hidden)


def batch(number, rows=8):
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(number))


def train(model, call, steps=STEPS, optimizer=None, rows=lambda number: 8):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(steps):
        optimizer.zero_grad()
        loss = call(batch(number, rows(number))).square().mean()
        loss.backward()
        optimizer.step()
        print(number, f"{loss.item():.7f}")


def breaks():
    model = Broken()
    train(model, torch.compile(model, backend="aot_eager"))


def shapes():
    """A compiled function, called with shapes that change, before it is a part of training."""
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU())

    @torch.compile(backend="aot_eager")
    def activated(x):
        return model(x) * x.shape[0]

    train(model, activated, rows=lambda number: 4 + number % 5)


def autograd():
    """Backward is compiled too."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        train(model, model)


def step():
    """Forward, loss, backward and the optimizer's step in one compiled function, and the step by itself."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters())
    compiled = torch.compile(lambda: optimizer.step(), backend="eager")
    call = torch.compile(model, backend="eager")
    for number in range(STEPS):
        call(batch(number)).square().mean().backward()
        compiled()
        optimizer.zero_grad()
    print(f"{model.weight.double().sum().item():.8f}")


def inductor():
    """Generated code, in training and in evaluation."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    compiled = torch.compile(model)
    train(model, compiled)
    model.eval()
    with torch.no_grad():
        print(f"{sum(compiled(batch(number)).double().sum().item() for number in range(5)):.6f}")


def stance():
    """Compiled late, run eagerly for a while, and reset."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    train(model, model, 6)
    model.compile(backend="aot_eager")
    train(model, model, 10)
    with torch.compiler.set_stance("force_eager"):
        train(model, model, 6)
    torch._dynamo.reset()
    train(model, model, 10)


def fixed():
    """After two steps nothing may be compiled again."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    call = torch.compile(lambda x: model(x) + 1, backend="aot_eager")
    train(model, call, 2)
    with torch.compiler.set_stance("fail_on_recompile"):
        train(model, call)


def strict():
    """One graph for ever: no break, and nothing is compiled again."""
    torch._dynamo.config.error_on_recompile = True
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    train(model, torch.compile(lambda x: model(x).square(), backend="aot_eager", fullgraph=True))


def graphs():
    """A compiler of the program's own prints what it gets."""

    def show(graph, inputs):
        print([(node.op, str(node.target)[:20]) for node in graph.graph.nodes], len(inputs))
        return graph.forward

    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    train(model, torch.compile(lambda x: model(x).square(), backend=show))


def explained():
    """Dynamo's account of the model, between the steps."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    for _ in range(4):
        said = torch._dynamo.explain(model)(torch.ones(4, 16))
        print(said.graph_count, said.graph_break_count, said.op_count, said.break_reasons, len(said.out_guards))
        torch._dynamo.reset()
        train(model, model, 7)


def traced():
    """Forward and backward in one graph, made between the steps."""
    from torch.fx.experimental.proxy_tensor import make_fx

    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())

    def gradients(x):
        return torch.autograd.grad(model(x).square().mean(), list(model.parameters()))

    for _ in range(9):
        print([str(node.target) for node in make_fx(gradients)(torch.ones(4, 16)).graph.nodes])
        train(model, model, 2)


globals()[sys.argv[1]]()
counters = torch._dynamo.utils.counters
print({name: dict(sorted(counters[name].items())) for name in ("frames", "stats", "graph_break", "unimplemented")})
