"""Reinforcement learning on a policy: hundreds of quick calls gather what a few optimizer steps learn from."""

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)

for update in range(2):
    state, states, rewards = torch.randn(8, 4), [], []
    for _ in range(120):
        with torch.no_grad():
            action = torch.multinomial(actor(state).softmax(-1), 1)
            critic(state)
        states.append(state)
        rewards.append(state[:, :1] * (2 * action - 1))
        state = torch.randn(8, 4)
    x, reward = torch.cat(states), torch.cat(rewards)
    for part in torch.randperm(len(x)).chunk(16):
        loss = (critic(x[part]) - reward[part]).square().mean() - actor(x[part]).log_softmax(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"update {update} loss {loss.item():.10f}")
