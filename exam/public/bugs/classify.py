"""Pictures of ten classes, in folders of one class: training and validation in turn."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(x.flatten(1))
        return self.fc(x)


def train_epoch(model, loader, criterion, optimizer, scheduler):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        scheduler.step()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    return right / len(loader.dataset)


def folders(train):
    data = datasets.MNIST("data", train=train, transform=transforms.ToTensor())
    return Subset(data, data.targets.argsort().tolist())


torch.manual_seed(0)
train_loader = DataLoader(folders(True), batch_size=64, shuffle=True)
test_loader = DataLoader(folders(False), batch_size=64)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    train_epoch(model, train_loader, criterion, optimizer, scheduler)
    print("epoch", epoch, "accuracy", validate(model, test_loader))
