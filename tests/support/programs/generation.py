"""Generation with a cache of keys and values, a token a step."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=2)).eval()
tokens = torch.randint(128, (2, 5))
cache = None
with torch.inference_mode():
    step_input = tokens
    for _ in range(24):
        out = model(step_input, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        step_input = torch.multinomial(torch.softmax(out.logits[:, -1], -1), 1)
        tokens = torch.cat([tokens, step_input], 1)
print(tokens.tolist())
