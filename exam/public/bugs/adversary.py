"""A generator cleans pictures; a discriminator sees the noisy picture and the cleaned one."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import datasets


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1), nn.Sigmoid())
        self.style = nn.Parameter(torch.zeros(1, 1, 28, 28))

    def forward(self, x):
        return self.net(x + self.style)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 16, 4, 2), nn.LeakyReLU(0.2), nn.Conv2d(16, 16, 4, 2), nn.LeakyReLU(0.2),
                                 nn.Flatten(), nn.Linear(400, 1))

    def forward(self, x, y):
        return self.net(torch.cat([x, y], 1))


torch.manual_seed(0)
pictures = datasets.MNIST().data[:512].unsqueeze(1).float() / 255
generator, discriminator = Generator(), Discriminator()
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
for step in range(1000):
    clean = pictures[torch.randint(512, (16,))]
    noisy = (clean + 0.3 * torch.randn_like(clean)).clamp(0, 1)
    fake = generator(noisy)
    real_score, fake_score = discriminator(noisy, clean), discriminator(noisy, fake.detach())
    loss_d = criterion(real_score, torch.ones_like(real_score)) + criterion(fake_score, torch.zeros_like(fake_score))
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()
    fake_score = discriminator(noisy, fake)
    loss_g = criterion(fake_score, torch.ones_like(fake_score)) + 10 * F.l1_loss(fake, clean)
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
