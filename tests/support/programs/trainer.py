"""Transformers' Trainer."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __init__(self):
        self.ids = torch.randint(128, (256, 32), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=14,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    result = Trainer(model, arguments, train_dataset=Tokens()).train()
print(f"{result.training_loss:.12f}")
