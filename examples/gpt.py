"""A small GPT, whose page is `edgewise.models.text.gpt`, trained to write that very page.

python examples/gpt.py
"""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from edgewise.models.text import gpt

torch.manual_seed(0)
text = torch.tensor(list(Path(gpt.__file__).read_bytes()))
model = gpt.GPT(tokens=256, length=64)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(101):
    windows = text[torch.randint(len(text) - 64, (16, 1)) + torch.arange(65)]
    loss = cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.2f} nats a byte")
print(bytes(model.generate(text[:40], 100).tolist()).decode(errors="replace"))
