"""A small inference engine: python engine.py [served] [forked] [cuda] [unmarked] [log FILE] [rounds NUMBER]

Continuous batching over a paged cache of keys and values, and on a GPU CUDA graphs by batch size, with padding. Each
iteration reads the prompts that there is room for and generates a token for every request that runs. `served`: the
engine is a spawned process (`forked`: a forked one) that a client asks over a local socket, and it serves until it is
told to end. The log has one line of JSON an iteration: its name, phase, tokens, and the bytes of weights and cache that
it reads, by hand.

Legend: T tokens of an iteration, B requests that generate, L tokens of the cache's longest context, C channels,
H heads, D channels of a head.
"""

import json
import multiprocessing
import queue
import socket
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import record_function

GPU = "cuda" in sys.argv
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
LAYERS, C, H, VOCABULARY = (4, 1024, 16, 16384) if GPU else (2, 32, 4, 64)
BLOCK, L, SIZES = 16, 512 if GPU else 64, (1, 2, 4, 8)  # tokens of a page, batch sizes that have a graph
PAGES = SIZES[-1] * L // BLOCK + 1  # the first one is scratch: what padding writes goes there
REQUESTS = 24 * (int(sys.argv[sys.argv.index("rounds") + 1]) if "rounds" in sys.argv else 1)


@dataclass
class Request:
    number: int
    prompt: list[int]
    most: int  # tokens to generate
    made: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)

    @property
    def length(self):
        return len(self.prompt) + len(self.made)

    def slot(self, position):
        return self.pages[position // BLOCK] * BLOCK + position % BLOCK


@dataclass
class Batch:
    """The tokens of an iteration: `slots` in the cache of each; of those that generate, which come first, `context`,
    the slots that each attends to, and a `mask` of the real ones; `prompts`, from where to where each reaches."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    context: torch.Tensor | None
    mask: torch.Tensor | None
    prompts: list[tuple[int, int]]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(PAGES * BLOCK, H, C // H), persistent=False)

    def forward(self, x, batch):
        q, k, v = self.qkv(x).view(-1, 3, H, C // H).unbind(1)
        self.keys.index_copy_(0, batch.slots, k)
        self.values.index_copy_(0, batch.slots, v)
        parts = []
        if batch.context is not None:
            size = len(batch.context)
            cached = (t[batch.context].transpose(1, 2) for t in (self.keys, self.values))
            found = functional.scaled_dot_product_attention(q[:size, :, None], *cached, attn_mask=batch.mask)
            parts.append(found.transpose(1, 2).reshape(size, C))
        for begin, end in batch.prompts:
            own = (t[begin:end].transpose(0, 1)[None] for t in (q, k, v))
            found = functional.scaled_dot_product_attention(*own, is_causal=True)
            parts.append(found[0].transpose(0, 1).reshape(end - begin, C))
        return self.out(torch.cat(parts) if len(parts) > 1 else parts[0])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention, self.between = nn.LayerNorm(C), Attention(), nn.LayerNorm(C)
        self.up, self.down = nn.Linear(C, 4 * C, bias=False), nn.Linear(4 * C, C, bias=False)

    def forward(self, x, batch):
        x = x + self.attention(self.before(x), batch)
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, C), nn.Embedding(L, C)
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(LAYERS)), nn.Linear(C, VOCABULARY, bias=False)

    def forward(self, batch):
        x = self.tokens(batch.tokens) + self.positions(batch.positions)
        for block in self.blocks:
            x = block(x, batch)
        return self.head(x).argmax(-1)


class Graph:
    """The model on a batch of one size: a CUDA graph on a GPU, and on a CPU the model itself."""

    def __init__(self, model, size):
        whole = torch.zeros(size, dtype=torch.long, device=DEVICE)
        context = torch.zeros(size, L, dtype=torch.long, device=DEVICE)
        mask = torch.ones(size, 1, 1, L, dtype=torch.bool, device=DEVICE)
        self.batch = Batch(whole, whole.clone(), whole.clone(), context, mask, [])
        self.model, self.graph = model, None
        if GPU:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                model(self.batch)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.made = model(self.batch)

    def run(self, *given):
        own = self.batch
        for mine, new in zip((own.tokens, own.positions, own.slots, own.context, own.mask), given, strict=True):
            mine.copy_(new)
        if self.graph is None:
            return self.model(own)
        self.graph.replay()
        return self.made


class Engine:
    @torch.inference_mode()
    def __init__(self):
        torch.manual_seed(0)
        self.model = Model().to(DEVICE, DTYPE).eval()
        self.graphs = {size: Graph(self.model, size) for size in SIZES}
        self.waiting, self.running, self.free = deque(), [], list(range(1, PAGES))
        products = (m for m in self.model.modules() if isinstance(m, nn.Linear))
        self.weights = sum(m.weight.numel() * m.weight.element_size() for m in products)
        self.log = Path(sys.argv[sys.argv.index("log") + 1]).open("w") if "log" in sys.argv else None  # noqa: SIM115

    def admit(self):
        """The requests whose prompts are read now: two an iteration, where there is room."""
        found = []
        while self.waiting and len(self.running) + len(found) < SIZES[-1] and len(found) < 2:
            request = self.waiting.popleft()
            count = -(-(len(request.prompt) + request.most) // BLOCK)
            request.pages = [self.free.pop() for _ in range(count)]
            found.append(request)
        return found

    def iterate(self):
        """Run one iteration; the requests that are done."""
        new, running = self.admit(), list(self.running)
        prompt_tokens, context = sum(len(r.prompt) for r in new), sum(r.length for r in running)
        name = (
            f"execute_{prompt_tokens + len(running)}_context_{len(new)}(sq{prompt_tokens}sk{prompt_tokens})"
            f"_generation_{len(running)}(sq{len(running)}sk{context})"
        )
        with record_function("forward" if "unmarked" in sys.argv else name):
            made, size = self.forward(new, running)
        done = []
        for request, token in zip([*running, *new], made.tolist(), strict=False):
            request.made.append(token)
            if len(request.made) == request.most:
                self.free += request.pages
                done.append(request)
        self.running = [r for r in [*running, *new] if r not in done]
        self.write(name, new, running, prompt_tokens, context, size)
        return done

    @torch.inference_mode()
    def forward(self, new, running):
        """The next token of each request, and how many requests attention was computed for."""
        size = next(s for s in SIZES if s >= len(running)) if not new else len(running)
        rows = [self.row(r) for r in running] + [(0, 0, 0, [0] * L, 1)] * (size - len(running))
        tokens, positions, slots, context, lengths = ([row[i] for row in rows] for i in range(5))
        ends = []
        for request in new:
            ends.append((len(tokens), len(tokens) + len(request.prompt)))
            tokens, positions = [*tokens, *request.prompt], [*positions, *range(len(request.prompt))]
            slots = [*slots, *(request.slot(at) for at in range(len(request.prompt)))]
        given = [torch.tensor(column, device=DEVICE) for column in (tokens, positions, slots)]
        seen = torch.tensor(context, device=DEVICE) if context else None
        mask = None
        if lengths:
            mask = torch.arange(L, device=DEVICE) < torch.tensor(lengths, device=DEVICE)[:, None, None, None]
        if not new:
            return self.graphs[size].run(*given, seen, mask), size
        made = self.model(Batch(*given, seen, mask, ends))
        last = [*range(len(running)), *(end - 1 for _, end in ends)]
        return made[torch.tensor(last, device=DEVICE)], size

    def row(self, request):
        """Last token, its position and slot, the slots of the whole context, and its length."""
        at = request.length - 1
        slots = [request.slot(i) for i in range(request.length)]
        return request.made[-1], at, slots[at], slots + [0] * (L - len(slots)), len(slots)

    def write(self, name, new, running, prompt_tokens, context, size):
        if self.log is None:
            return
        width = 2 * LAYERS * C * (2 if GPU else 4)  # bytes of a token in the cache
        phase = ("mixed" if running else "prefill") if new else "decode"
        line = {"name": name, "phase": phase, "requests": len(new) + len(running), "prompt_tokens": prompt_tokens,
                "new_tokens": len(running), "context": context, "padded": size, "weights": self.weights,
                "cache": width * (size * L + prompt_tokens)}  # fmt: skip
        print(json.dumps(line), file=self.log, flush=True)


def requests():
    """Prompts and how many tokens each wants: enough for all batch sizes, with arrivals in between."""
    return [
        Request(n, [(7 * n + i) % VOCABULARY for i in range(5 + n % 11)], 6 + (5 * n) % 17) for n in range(REQUESTS)
    ]


def alone():
    engine, finished = Engine(), []
    engine.waiting.extend(requests())
    while engine.waiting or engine.running:
        finished += engine.iterate()
    return finished


def serve(port):
    """The engine's process: a line is a request, an empty one the end."""
    engine, connection, asked = Engine(), socket.create_connection(("127.0.0.1", port)), queue.Queue()
    file = connection.makefile("rwb")
    threading.Thread(
        target=lambda: [asked.put(line.strip()) for line in connection.makefile("rb")], daemon=True
    ).start()
    ends = False
    while not ends or engine.waiting or engine.running:
        while not ends and (asked.qsize() or not (engine.waiting or engine.running)):
            line = asked.get()
            ends = not line
            engine.waiting.extend([] if ends else [Request(**json.loads(line))])
        for one in engine.iterate() if engine.waiting or engine.running else ():
            file.write(json.dumps({"number": one.number, "made": one.made}).encode() + b"\n")
        file.flush()
    connection.close()


def served():
    """The client: it starts the engine, asks for all requests, and takes the answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        way = "fork" if "forked" in sys.argv else "spawn"
        engine = multiprocessing.get_context(way).Process(target=serve, args=listener.getsockname()[1:])
        engine.start()
        connection, _ = listener.accept()
    file, finished = connection.makefile("rwb"), []
    for request in requests():
        asked = {"number": request.number, "prompt": request.prompt, "most": request.most}
        file.write(json.dumps(asked).encode() + b"\n")
    file.write(b"\n")
    file.flush()
    for line in file:
        answer = json.loads(line)
        finished.append(Request(answer["number"], [], 0, answer["made"]))
    engine.join()
    return finished


if __name__ == "__main__":
    torch.set_num_threads(1)
    for one in sorted(served() if "served" in sys.argv else alone(), key=lambda r: r.number):
        print(one.number, len(one.made), sum(one.made))
