"""More programs about pictures and points: segmentation, contrast, few bits, attacks, privacy."""

import data
from session import program, train

ALL = "single targets inputs batches classes logits"


def small_net(classes=10, channels=1):
    """A convolutional network for digits, for packages that change how one is trained."""
    from torch import nn
    return nn.Sequential(nn.Conv2d(channels, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
                         nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))


@program("smp-unet", "segmentation_models_pytorch sklearn.datasets", "single targets inputs batches modes")
def smp_unet(s):
    """Strokes of noisy digits, with the package's decoder over one of timm's encoders."""
    import segmentation_models_pytorch as package
    import torch
    model = package.Unet("tu-test_resnet", encoder_weights=None, in_channels=1, encoder_depth=3,
                         decoder_channels=(16, 8, 8))
    x, _ = data.digits(size=16)
    y = (x > 0).float()
    x = x + 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(2e-3))
    train(s, model, optimizer, s.batches(x, y, s.batch(16), 120),
          package.losses.DiceLoss(package.losses.BINARY_MODE))


@program("deep-supervision-unet", "dynamic_network_architectures.architectures.unet sklearn.datasets",
         "single targets inputs batches modes")
def deep_unet(s):
    """nnU-Net's network: a loss at two resolutions, SGD with Nesterov's momentum, polynomial decay."""
    import torch
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    from torch import nn
    model = PlainConvUNet(1, 3, (8, 16, 16), nn.Conv2d, 3, (1, 2, 2), 1, 2, 1, conv_bias=True,
                          norm_op=nn.InstanceNorm2d, norm_op_kwargs={"affine": True},
                          nonlin=nn.LeakyReLU, deep_supervision=True)
    x, _ = data.digits(size=16)
    y = (x[:, 0] > 0).long()
    optimizer = torch.optim.SGD(model.parameters(), s.rate(1e-2), momentum=0.99, nesterov=True,
                                weight_decay=3e-5)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, 120, 0.9)
    loss = nn.CrossEntropyLoss()

    def both(found, y):
        return loss(found[0], y) * 2 / 3 + loss(found[1], y[:, ::2, ::2]) / 3

    train(s, model, optimizer, s.batches(x, y, s.batch(16), 120), both, schedule)


@program("kornia-registration", "kornia.geometry.transform sklearn.datasets", "layers single")
def registration(s):
    """The homography between two pictures, in the package's own loop."""
    import torch
    from kornia.geometry.transform import ImageRegistrator, warp_perspective
    photo = data.digits()[0][:64].view(8, 8, 8, 8).transpose(1, 2).reshape(1, 1, 64, 64) / 2 + 0.5
    turn = torch.tensor([[[0.97, -0.1, 2.0], [0.1, 0.97, -3.0], [0.0, 0.0, 1.0]]])
    made = ImageRegistrator("similarity", optimizer=lambda p, lr: first(torch.optim.Adam(p, lr)),
                            lr=s.rate(1e-2), num_iterations=140, pyramid_levels=1, tolerance=0.0)

    def first(optimizer):
        s.attach(made.model, optimizer)
        return optimizer

    made.register(warp_perspective(photo, turn, (64, 64)), photo + 0.02 * torch.randn_like(photo))


@program("byol", "byol_pytorch sklearn.datasets", "inputs batches")
def byol(s):
    """Two views of a digit, a network and its moving average."""
    import torch
    from byol_pytorch import BYOL
    net = small_net(32, 3)
    model = BYOL(net, image_size=8, hidden_layer=-1, projection_size=32, projection_hidden_size=64,
                 augment_fn=lambda x: x + 0.3 * torch.randn_like(x), use_simplicial_embeddings=False,
                 augment_fn2=lambda x: x * (1 + 0.2 * torch.randn(len(x), 1, 1, 1)), sync_batchnorm=False)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    x, y = data.digits(channels=3)
    s.layers = "net*"
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(64), 130):
        optimizer.zero_grad()
        model(inputs).backward()
        optimizer.step()
        model.update_moving_average()


@program("slot-attention", "slot_attention sklearn.datasets", "single inputs batches")
def slots(s):
    """Two digits in a picture, put together from three slots."""
    import torch
    from slot_attention import SlotAttention
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 16, 2, 2))
            self.place = nn.Parameter(0.1 * torch.randn(32, 16))
            self.slots = SlotAttention(num_slots=3, dim=16, iters=3, hidden_dim=32)
            self.decoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 256))

        def forward(self, x):
            found = self.decoder(self.slots(self.encoder(x).flatten(2).mT + self.place))
            parts, mask = found.view(len(x), 3, 2, 1, 8, 16).unbind(2)
            return (parts * mask.softmax(1)).sum(1)

    x, y = data.digits()
    x = torch.cat([x[:-1], x[1:]], -1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(4e-3))
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y[1:], s.batch(32), 140):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs).backward()
        optimizer.step()


@program("x-clip", "x_clip sklearn.datasets", "single")
def clip(s):
    """Digits and the letters of their names in one space."""
    import torch
    from x_clip import CLIP
    model = CLIP(dim_text=32, dim_image=32, dim_latent=16, num_text_tokens=30, text_enc_depth=1,
                 text_seq_len=6, text_heads=2, text_dim_head=16, visual_enc_depth=1, visual_heads=2,
                 visual_dim_head=16, visual_image_size=16, visual_patch_size=4, channels=1,
                 visual_patch_dropout=0.0)
    names = "zero one two three four five six seven eight nine".split()
    texts = torch.tensor([[ord(c) - 96 for c in name.ljust(6, "`")] for name in names])
    x, y = data.digits(size=16)
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(1e-3))
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x, y, s.batch(32), 140):
        optimizer.zero_grad()
        model(texts[labels], inputs, return_loss=True).backward()
        optimizer.step()


@program("opacus-dp-sgd", "opacus sklearn.datasets", "single targets")
def private(s):
    """Differentially private: each sample's gradient clipped, noise added, sample sizes drawn."""
    import torch
    from opacus import PrivacyEngine
    torch.manual_seed(s.seed)
    x, y = s.arrays(*data.digits())
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), s.rate(0.3))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), s.batch(64))
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=0.7, max_grad_norm=1.0)
    s.attach(model, optimizer.original_optimizer)
    for _ in range(5 * s.batch(1)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


@program("torchattacks-pgd", "torchattacks sklearn.datasets", ALL + " relu")
def adversarial(s):
    """Trained on attacked pictures."""
    import torch
    import torchattacks
    model = small_net()
    attack = torchattacks.PGD(model, eps=0.05, alpha=0.03, steps=3)
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(5e-3))
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x / 2 + 0.5, y, s.batch(32), 140):
        attacked = attack(inputs.clamp(0, 1), labels)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(attacked), labels).backward()
        optimizer.step()


@program("brevitas-4-bit", "brevitas.nn sklearn.datasets", ALL + " modes relu")
def quantized(s):
    """Weights and activations of four bits, through their rounding."""
    import brevitas.nn as qnn
    import torch
    from torch import nn
    model = nn.Sequential(
        qnn.QuantConv2d(1, 8, 3, stride=2, padding=1, weight_bit_width=4), nn.BatchNorm2d(8),
        qnn.QuantReLU(bit_width=4), qnn.QuantConv2d(8, 16, 3, stride=2, padding=1, weight_bit_width=4),
        nn.BatchNorm2d(16), qnn.QuantReLU(bit_width=4), nn.Flatten(),
        qnn.QuantLinear(64, 10, bias=True, weight_bit_width=4))
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 130), nn.CrossEntropyLoss())


@program("spikingjelly", "spikingjelly.activation_based sklearn.datasets", ALL + " modes")
def spikes(s):
    """Spiking convolutions over four steps of time, reset after each batch."""
    import torch
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
    from torch import nn
    model = nn.Sequential(
        layer.Conv2d(1, 8, 3, stride=2, padding=1), layer.BatchNorm2d(8),
        neuron.IFNode(surrogate_function=surrogate.ATan()), layer.Flatten(), layer.Linear(128, 10),
        neuron.LIFNode(tau=2.0, surrogate_function=surrogate.ATan()))
    functional.set_step_mode(model, "m")
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(5e-3))
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x + 1.0, y, s.batch(32), 130):
        optimizer.zero_grad()
        rate = model(inputs.repeat(4, 1, 1, 1, 1)).mean(0)
        nn.functional.mse_loss(rate, nn.functional.one_hot(labels, 10).float()).backward()
        optimizer.step()
        functional.reset_net(model)


@program("tensorly-factorised", "tltorch sklearn.datasets", ALL)
def factorised(s):
    """Layers whose weights are kept as products of small tensors."""
    import tltorch
    import torch
    from torch import nn
    model = nn.Sequential(
        nn.Flatten(), tltorch.FactorizedLinear((8, 8), (8, 8), factorization="blocktt", rank=0.5), nn.GELU(),
        tltorch.FactorizedLinear((8, 8), (4, 8), factorization="cp", rank=0.5), nn.GELU(), nn.Linear(32, 10))
    for module in model:
        if hasattr(module, "reset_parameters") and hasattr(module.weight, "normal_"):
            with torch.no_grad():
                module.weight.normal_(0, 0.1)
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 140), nn.CrossEntropyLoss())


@program("point-transformer", "point_transformer_pytorch adan_pytorch",
         "single targets inputs batches classes")
def points(s):
    """Which of three drawn shapes are these 24 points? With Adan."""
    import torch
    from adan_pytorch import Adan
    from point_transformer_pytorch import PointTransformerLayer
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 3)
            self.attend = PointTransformerLayer(dim=16, pos_mlp_hidden_dim=16, attn_mlp_hidden_mult=2,
                                                num_neighbors=6)

        def forward(self, points):
            x = self.first(points)
            return self.last((x + self.attend(x, points)).mean(1))

    draw = torch.Generator().manual_seed(0)
    points = torch.randn(900, 24, 3, generator=draw)
    y = torch.arange(900) % 3
    ball = points / points.norm(dim=2, keepdim=True)
    cube = points / points.abs().amax(2, keepdim=True)
    x = torch.stack([ball, cube, points * torch.tensor([1.0, 1.0, 0.1])])[y, torch.arange(900)]
    model = Net()
    optimizer = Adan(model.parameters(), lr=s.rate(3e-3), betas=(0.02, 0.08, 0.01), weight_decay=0.02)
    train(s, model, optimizer, s.batches(x, y, s.batch(16), 140), nn.CrossEntropyLoss())
