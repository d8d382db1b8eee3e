"""A model that is compiled ahead of time is called: python ahead.py loaded (by AOTInductor) | wrapped (by C++)."""

import sys
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).eval()
x = torch.randn(128, 512)


def loaded():
    exported = torch.export.export(model, (x,))
    with tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/model.pt2")
        return torch._inductor.aoti_load_package(package)


def wrapped():
    return torch.compile(model, options={"cpp_wrapper": True})


run = globals()[sys.argv[1]]()
for number in range(8):
    with torch.inference_mode():
        print(number, f"{run(x).square().mean().item():.8f}")
