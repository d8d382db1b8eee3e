"""Places of Thunder's kernels, held against a truth without marks: each layer has widths of its own."""

from __future__ import annotations

import re

import pytest

from perfkit import kernels
from perfkit.backends.thunder import support
from perfkit.run_folder import Settings

torch = pytest.importorskip("torch")
if missing := support.unavailable(None):
    pytest.skip(missing, allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from perfkit import functional, profile_names, ranges  # noqa: E402
from perfkit.analysis.listing import listing  # noqa: E402
from perfkit.backends.thunder import origins  # noqa: E402
from perfkit.backends.thunder.backend import ThunderProgram  # noqa: E402
from perfkit.kernels import libraries  # noqa: E402
from perfkit.readers.kineto.trace import read_trace  # noqa: E402
from perfkit.run import profile  # noqa: E402
from perfkit.workloads import find  # noqa: E402
from tests.support.sweeps import rest  # noqa: E402

WIDTHS = (20, 28)
ROWS, TOKENS, CLASSES, INTO = 3, 9, 7, 13


class Layer(nn.Module):
    """LayerNorm → attention over two heads → residual → wider GELU; it ends in the next layer's width."""

    def __init__(self, width: int, following: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, following)

    def forward(self, x):
        q, k, v = functional.split_heads(self.qkv(self.ln_1(x)), 2)
        weights = functional.causal_softmax(q @ k.transpose(-2, -1), q.shape[-1] ** -0.5)
        x = x + functional.merge_heads(weights @ v)
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Net(nn.Module):
    """Layers of different widths under one list, and a loss; `first` is used twice."""

    def __init__(self) -> None:
        super().__init__()
        following = (*WIDTHS[1:], WIDTHS[-1])
        self.layers = nn.ModuleList(Layer(w, f) for w, f in zip(WIDTHS, following, strict=True))
        self.first = nn.Linear(INTO, INTO)
        self.into = nn.Linear(INTO, WIDTHS[0])
        self.last = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, x, target):
        x = self.into(self.first(self.first(x)))
        for layer in self.layers:
            x = layer(x)
        out = self.last(x)
        return out, F.cross_entropy(out.reshape(-1, CLASSES), target.reshape(-1))


def widths_of(shapes: str) -> set[int]:
    return {int(n) for n in re.findall(r"\d+", re.sub(r"[a-z]+\d+", "", shapes))}


def layer_by_width(shapes: str) -> int | None:
    """The layer whose inner widths (of q, k and v together, of the GELU, of a head) stand among `shapes`, or None.

    Its outer width says nothing: what is computed at the border of two layers has the width of the second.
    """
    found = widths_of(shapes)
    layers = [layer for layer, w in enumerate(WIDTHS) if found & {3 * w, 4 * w, w // 2}]
    return layers[0] if len(layers) == 1 else None


# thunder-llmc's products are MKL's on some processors, and oneDNN's on others, as far as its torch has it.
SIDES = [("thunder", ""), ("thunder-llmc", "MKL")]
if torch.backends.mkldnn.is_available():
    SIDES.append(rest(("thunder-llmc", "oneDNN")))


@pytest.fixture(scope="module", params=SIDES)
def table(request, tmp_path_factory):
    backend, library = request.param
    if backend == "thunder-llmc" and (why := kernels.unavailable("cpu")):
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries, "_here", lambda: library == "oneDNN")
        yield backend, *profiled(backend, tmp_path_factory.mktemp("profile"))


def by_sgd():
    """A workload that gives any model SGD."""
    workload = type(find("mlp"))()
    workload.optimizer = lambda model, settings: torch.optim.SGD(model.parameters(), lr=0.1)
    return workload


def profiled(backend: str, folder):
    """The program of `backend` after two training steps, and the kernel table of the second."""
    torch.manual_seed(0)
    model = Net()
    executors = None
    if backend == "thunder-llmc":
        thunder = support.load()
        kernels.load(())
        from perfkit.backends.thunder.executor.executor import executor, use_catalog

        use_catalog(())
        executors = [executor, *(e for e in thunder.get_default_executors() if e is not executor)]
    batch = (torch.randn(ROWS, TOKENS, INTO), torch.randint(CLASSES, (ROWS, TOKENS)))
    settings = Settings(workload="net", preset="", batch_size=ROWS)
    program = ThunderProgram(by_sgd(), model, settings, executors)
    program.train_step([batch])
    found = profile.write(profile.record(program, settings, lambda _: program.train_step([batch]), 1), folder)
    table = read_trace(found.trace, costs=kernels.cost_model(), layers="layers.*")
    return program, table


@pytest.mark.slow
def test_layers_are_those_that_the_widths_tell(table):
    _, _, table = table
    frame = table.frame[table.frame["pass"] != "optimizer"]
    truth = frame["shapes"].fillna("").map(layer_by_width)
    judged = truth.notna()
    # Each layer has forward three linears, two products, two permutations, a GELU; a library may add rows for biases.
    for pass_, fewest in (("forward", 8 * len(WIDTHS)), ("backward", 14 * len(WIDTHS))):
        mine = judged & (frame["pass"] == pass_)
        assert mine.sum() >= fewest
        wrong = frame[mine & (frame["layer"].fillna(-1) != truth.fillna(-1))]
        assert wrong.empty, wrong[["name", "shapes", "module", "layer", "range"]].to_string()


@pytest.mark.slow
def test_a_layer_mislabelled_on_purpose_is_seen_by_the_widths(table):
    frame = table[2].frame[table[2].frame["pass"] != "optimizer"]
    truth = frame["shapes"].fillna("").map(layer_by_width)
    moved = frame["layer"].replace({0: 1, 1: 0})
    assert (moved.fillna(-1) != truth.fillna(-1))[truth.notna()].mean() > 0.3


@pytest.mark.slow
def test_modules_operators_and_evidence(table):
    name, program, table = table
    on_a_line = table.frame["range"].fillna("").str.contains(r"generated:\d+$")
    elsewhere = table.frame[~on_a_line & (table.frame["pass"] != "optimizer")]
    # The loss's gradient, a 1, and that of the logits, which are returned with it: zeros.
    assert sorted(elsewhere["name"]) == ["aten::fill_", "aten::zero_"]
    frame = table.frame[on_a_line]
    assert set(frame["placed_by"]) <= {"symbol", "parameter"}
    matmuls = frame[frame["family"] == "matmul"]
    places = set(zip(matmuls["pass"], matmuls["module"], matmuls["operator"], strict=True))
    for direction in ("forward", "backward"):
        assert (direction, "layers.1.up", "linear") in places
        assert (direction, "layers.1", "matmul") in places
    other = set(zip(frame["pass"], frame["module"], frame["operator"], strict=True))
    assert ("backward", "layers.1", "gelu") in other
    assert ("forward", "layers.1.ln_1", "layer_norm") in other
    assert ("forward", "(root)", "cross_entropy") in other
    kernel = frame[frame["name"] == "perfkit::causal_softmax_backward"]
    assert name == "thunder" or kernel["layer"].tolist() == [1, 0]
    assert program.warnings() == []


@pytest.mark.slow
def test_lines_are_those_of_the_shown_trace(table):
    _, program, table = table
    text = program.generated().splitlines()
    assert "perfkit_line" not in program.generated()
    frame = table.frame[table.frame["range"].notna() & (table.frame["family"] == "matmul")]
    shown = [text[int(path.rpartition(":")[2]) - 1] for path in frame["range"]]
    assert shown
    called = {text.partition(" = ")[2].partition("(")[0] for text in shown}
    assert all(re.search(r"linear|matmul|gradient", name) for name in called), called


@pytest.mark.slow
def test_the_listing_of_a_trace_adds_up_to_the_step(table):
    _, program, table = table
    found = listing("thunder", "net", program.generated(), table, None)
    assert found is not None
    ran = table.frame[table.frame["duration_ns"] > 0]
    outside = {(g.key.partition(":")[0]) for g in found.others}
    assert outside <= {"optimizer", "backward"}
    parts = found.on_lines_ns + sum(group.time_ns for group in found.others)
    assert parts == pytest.approx(float(ran["duration_ns"].sum()))
    costly = max(found.lines, key=lambda line: line.cost.time_ns)
    assert " = " in found.text[costly.number - 1]
    mine = [line for line in found.lines if "(root)" not in line.places[0]]
    assert all(not found.text[line.number - 1].lstrip().startswith("#") for line in mine)


def test_parameters_whose_names_read_the_same_tell_no_module():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a_b = nn.Linear(2, 2, bias=False)
            self.a = nn.Module()
            self.a.b = nn.Linear(2, 2, bias=False)
            self.c = nn.Linear(2, 2, bias=False)
            self.c.weight = self.a_b.weight

    modules = origins.ModulePaths(Odd())
    assert modules.owner == {"t_c_weight": "c"}
    assert modules.shared == ["t_a_b_weight", "t_c_weight"]


def test_a_thunder_without_frames_warns_and_runs(monkeypatch):
    support.load()
    monkeypatch.setattr(origins, "_frames", lambda: (_ for _ in ()).throw(AttributeError("no frames")))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = model

        def forward(self, x):
            y = self.body(x)
            return y, y.sum()

    net = Two()
    program = ThunderProgram(by_sgd(), net, Settings(workload="two", preset="", batch_size=2), None)
    program.train_step([(torch.ones(2, 4),)])
    assert "placed by parameters and data flow only" in program.warnings()[0]


def test_marks_cost_nothing_to_speak_of_while_nobody_listens():
    begin, go_to, end = ranges.line_marker()
    begin("perfkit:line:forward:1:none:")
    go_to("perfkit:line:forward:2:none:")
    end()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        go_to("perfkit:line:forward:3:none:")  # its program began unheard, and stays so
        end()
        begin("perfkit:line:forward:4:none:")
        go_to("perfkit:line:forward:5:none:")
        end()
    names = [e.name for e in profiler.events() if e.name.startswith(profile_names.PREFIX)]
    assert names == ["perfkit:line:forward:4:none:", "perfkit:line:forward:5:none:"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Thunder's program of a step that generates, and the kernel table of its third step."""
    from perfkit.backends.generation import Generation
    from perfkit.workloads import resolve_settings

    workload, sizes = (
        find("llama"),
        {"preset": "tiny", "batch_size": 1, "sequence_length": 6, "dimensions": {"layers": 1}},
    )
    settings = resolve_settings(workload, **sizes, generate=3, training=False)
    model = workload.build(settings)
    program = ThunderProgram(workload, model, settings, None)
    program.generation = Generation(workload, model, settings)
    batch = workload.batch(settings, 0)
    for _ in range(2):
        program.forward(batch)
    folder = tmp_path_factory.mktemp("profile")
    found = profile.write(profile.record(program, settings, lambda _: program.forward(batch), 1), folder)
    return program, read_trace(found.trace, costs=kernels.cost_model(), layers="layers.*")


@pytest.mark.slow
def test_lines_of_prefill_and_decode_are_those_of_their_own_trace(generated):
    program, table = generated
    text = program.generated().splitlines()
    begins = {name: text.index(f"# {name} forward") for name in ("prefill", "decode")}
    for pass_, inside in {"prefill": range(begins["decode"]), "decode": range(begins["decode"], len(text))}.items():
        frame = table.frame[(table.frame["pass"] == pass_) & (table.frame["operator"] == "linear")]
        lines = {int(path.rpartition(":")[2]) - 1 for path in frame["range"]}
        assert len(lines) == 7 + 1  # of one layer, and the head
        assert lines <= set(inside)
        assert all(" = torch.nn.functional.linear(" in text[line] for line in lines)


@pytest.mark.slow
def test_neither_prefill_nor_decode_tries_the_other_ones_program(generated, monkeypatch):
    """A failed check of Thunder's writes a message of the arguments, cache and all: as long as the rest of the pass."""
    import thunder

    program, _ = generated
    prints = []
    monkeypatch.setattr(torch.Tensor, "__repr__", lambda x, **_: prints.append(x.shape) or "")
    misses = [thunder.cache_misses(compiled.call) for compiled in program._compiled.values()]
    program.forward((torch.zeros(1, 6, dtype=torch.long),))
    assert misses == [thunder.cache_misses(compiled.call) for compiled in program._compiled.values()] == [1, 1]
    assert prints == []
