"""Ways to end, at a step: python endings.py WAY STEP, with exit|raise|forward|kill|terminate|interrupt|caught|hook|…"""

import atexit
import os
import signal
import sys
import threading

import torch
from torch import nn

way, at = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.fails = False

    def forward(self, x):
        if self.fails:
            raise ValueError("the batch is bad")
        return self.linear(x)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise ArithmeticError("the gradient is bad")


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
numbers = torch.Generator().manual_seed(2)
atexit.register(lambda: print("at exit", flush=True))


def step(through=None):
    x = torch.randn(4, 8, generator=numbers)
    optimizer.zero_grad()
    y = model(x)
    (through(y) if through else y).square().mean().backward()
    optimizer.step()
    return y.sum().item()


def end():
    if way == "exit":
        sys.exit(3)
    if way == "raise":
        raise RuntimeError("enough")
    if way == "text":
        sys.exit("no more data")
    if way == "now":
        os._exit(7)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "abort":
        os.abort()
    if way in ("terminate", "handled"):
        if way == "handled":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        os.kill(os.getpid(), signal.SIGTERM)
    if way in ("interrupt", "caught"):
        signal.raise_signal(signal.SIGINT)
    if way == "forward":
        model.fails = True
        step()
    if way == "backward":
        step(Fails.apply)
    if way == "recovered":  # fails in forward and in backward, and trains on
        for fail in ("forward", "backward"):
            try:
                model.fails = fail == "forward"
                step(Fails.apply)
            except (ValueError, ArithmeticError) as error:
                print("recovered from", error)
            model.fails = False
    if way == "hook":
        sys.excepthook = lambda kind, value, trace: print("hook", kind.__name__, value)
        raise KeyError("the last")
    if way == "thread":  # the main thread ends, another one trains on
        threading.Thread(target=lambda: print([f"{step():.8f}" for _ in range(30)])).start()
        sys.exit(4)
    if way == "replaced":
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-c", "print('another program')"])


try:
    for number in range(40):
        if number == at:
            end()
        print(number, f"{step():.8f}", flush=True)
except KeyboardInterrupt:
    print("interrupted")
    if way != "caught":
        raise
finally:
    print("finally", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getsignal(signal.SIGINT).__name__)
