"""More compiled parts than Dynamo compiles one function for, and batches of several sizes; how often is printed."""

import torch
from torch import nn
from torch._dynamo.utils import counters, get_compilation_metrics

FORWARD = "def forward(self, x): return torch.tanh(self.linear(x)) * {} + x"


def part(number):
    """A class with a forward of its own."""
    names = {"torch": torch}
    exec(FORWARD.format(number), names)
    kind = type(f"Part{number}", (nn.Module,), {"forward": names["forward"]})
    made = kind()
    made.linear = nn.Linear(8, 8)
    return made


torch.manual_seed(0)
model = nn.Sequential(*(part(number) for number in range(10)))
calls = [torch.compile(one, backend="eager") for one in model]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step in range(12):
    x = torch.randn((4, 6, 8)[step % 3], 8)
    for call in calls:
        x = call(x)
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()
print("graphs", counters["stats"]["unique_graphs"], "compilations", len(get_compilation_metrics()))
