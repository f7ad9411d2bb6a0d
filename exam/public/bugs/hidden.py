"""A variational autoencoder of pictures."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import datasets


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU())
        self.mean, self.log_var = nn.Linear(128, 8), nn.Linear(128, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 784))

    def forward(self, x):
        h = self.encoder(x)
        mean, log_var = self.mean(h), self.log_var(h)
        return self.decoder(mean + (0.5 * log_var).exp() * torch.randn_like(mean)), mean, log_var


torch.manual_seed(0)
pictures = datasets.MNIST().data.flatten(1).float() / 255
model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1000):
    x = pictures[torch.randint(len(pictures), (64,))]
    logits, mean, log_var = model(x)
    like = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    kl = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp(), dim=-1)
    loss = (like + kl).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
