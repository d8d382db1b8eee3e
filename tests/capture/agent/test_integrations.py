"""The callbacks for trainers of other packages: a few steps of a training, as a run folder."""

import pytest
import torch

import perfkit

SAID = "is not installed (extra `integrations`)"


def check(folder, steps_are, module):
    """Two whole steps with passes and modules, and timed ones along with them."""
    reading = perfkit.read(folder)
    frame = reading.table.frame
    assert reading.table.facts["steps"] == 2
    assert {"forward", "backward", "optimizer"} <= set(frame["pass"].dropna()) and module in set(
        frame["module"].dropna()
    )
    manifest = reading.source.manifest
    assert manifest.workload.steps_are == steps_are and manifest.backends[0].samples_ns


def test_transformers_trainer(tmp_path, monkeypatch):
    pytest.importorskip("accelerate", reason=f"accelerate {SAID}")
    transformers = pytest.importorskip("transformers", reason=f"transformers {SAID}")
    from perfkit.profiling.transformers import PerfkitCallback

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    ids = torch.randint(64, (64, 16))
    data = [{"input_ids": one, "labels": one} for one in ids]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=8, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
        save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    callback = PerfkitCallback(tmp_path / "run", warmup=3, steps=2)
    transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    check(tmp_path / "run", "a step is what the program marked as one", "transformer.h.0.mlp.c_fc")
    found = callback.profile.reading.table.frame
    assert found[found["operator"] == "aten::embedding"].groupby("step").size().nunique() == 1  # as many batches a step


def test_lightning_trainer(tmp_path):
    lightning = pytest.importorskip("lightning", reason=f"lightning {SAID}")
    from perfkit.integrations.lightning import PerfkitCallback  # an earlier name, which still works

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

        def training_step(self, batch, index):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=4)
    trainer = lightning.Trainer(
        max_steps=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[PerfkitCallback(tmp_path / "run", warmup=3, steps=2)],
    )  # fmt: skip
    trainer.fit(Lit(), loader)
    check(tmp_path / "run", "a step is what the program marked as one", "2")
