"""Programs about pictures, films and sound, from packages that parts 1 to 4 do not use."""

import data
from session import program, train

ALL = "single targets inputs batches classes logits"
SIMPLE = "single targets inputs batches"


def own(s, model, optimizer, batches, loss):
    """A loop whose loss takes the batch: loss(x, y)."""
    s.attach(model, optimizer)
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()


def tones(count=480, length=2048, classes=6):
    """Drawn tones with harmonics and noise; which of some heights? (count, length) at 8 kHz."""
    import numpy as np
    import torch
    draw = np.random.default_rng(0)
    y = np.arange(count) % classes
    t = np.arange(length) / 8000.0
    hertz = 220.0 * 2.0 ** (y / 3.0) * np.exp(0.02 * draw.normal(size=count))
    phase = 2 * np.pi * (hertz[:, None] * t + draw.uniform(size=(count, 1)))
    x = np.sin(phase) + 0.4 * np.sin(2 * phase) + 0.3 * draw.normal(size=phase.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


@program("efficientnet-pytorch", "efficientnet_pytorch.utils sklearn.datasets", ALL + " modes")
def efficientnet(s):
    """A small one of the family: inverted bottlenecks, squeeze and excitation, dropped paths."""
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.utils import BlockDecoder, GlobalParams
    from torch import nn
    blocks = BlockDecoder.decode(["r1_k3_s11_e1_i32_o16_se0.25", "r2_k3_s22_e4_i16_o24_se0.25",
                                  "r1_k5_s22_e4_i24_o32_se0.25"])
    model = EfficientNet(blocks, GlobalParams(
        batch_norm_momentum=0.9, batch_norm_epsilon=1e-3, dropout_rate=0.2, num_classes=10, image_size=16,
        width_coefficient=0.5, depth_coefficient=1.0, depth_divisor=4, drop_connect_rate=0.1))
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    train(s, model, optimizer, s.batches(*data.digits(channels=3, size=16), s.batch(32), s.steps(110)),
          nn.CrossEntropyLoss(label_smoothing=0.1))


@program("lambda-networks", "lambda_networks sklearn.datasets", ALL + " modes")
def lambda_network(s):
    """Lambda layers in place of attention."""
    from lambda_networks import LambdaLayer
    from torch import nn
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), LambdaLayer(dim=16, dim_k=8, r=5, heads=4),
                          nn.BatchNorm2d(16), nn.GELU(), nn.AvgPool2d(2),
                          LambdaLayer(dim=16, dim_out=32, dim_k=8, r=3, heads=4), nn.BatchNorm2d(32),
                          nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    optimizer = s.optimizer("SGD", model.parameters(), 0.05, momentum=0.9)
    train(s, model, optimizer, s.batches(*data.digits(), s.batch(32), s.steps(130)), nn.CrossEntropyLoss())


@program("timesformer", "timesformer_pytorch sklearn.datasets", ALL)
def timesformer(s):
    """In which of four directions does a digit move?"""
    import torch
    from timesformer_pytorch import TimeSformer
    from torch import nn
    digits = torch.nn.functional.pad(data.digits()[0][:800], (4, 4, 4, 4), value=-1.0)
    y = torch.arange(800) % 4
    ways = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])[y]
    x = torch.stack([torch.stack([torch.roll(d, (2 * t * w).tolist(), (1, 2)) for t in range(3)])
                     for d, w in zip(digits, ways)])
    model = TimeSformer(dim=32, image_size=16, patch_size=4, num_frames=3, num_classes=4, channels=1, depth=2,
                        heads=2, dim_head=16, attn_dropout=0.0, ff_dropout=0.0)
    optimizer = s.optimizer("AdamW", model.parameters(), 2e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(16), s.steps(140)), nn.CrossEntropyLoss())


@program("unet-toolbelt", "unet pytorch_toolbelt.losses sklearn.datasets", SIMPLE + " modes")
def unet(s):
    """Strokes in noise: a U-Net, a sum of two losses for few pixels, a cosine schedule."""
    import torch
    from pytorch_toolbelt.losses import BinaryFocalLoss, JaccardLoss
    from unet import UNet
    model = UNet(1, 1, 2, num_encoding_blocks=3, out_channels_first_layer=8, normalization="batch", padding=1)
    x, _ = data.digits(size=16)
    y = (x > 0).float()
    x = x + 0.6 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, s.steps(110))
    overlap, focal = JaccardLoss("binary"), BinaryFocalLoss()
    train(s, model, optimizer, s.batches(x, y, s.batch(16), s.steps(110)),
          lambda found, y: overlap(found, y) + 0.5 * focal(found, y), schedule)


@program("doctr-crnn", "doctr.models.recognition sklearn.datasets", "single modes")
def crnn(s):
    """Reads three digits in a row: convolutions, an LSTM, CTC, as docTR's recognizers."""
    import torch
    from doctr.models.recognition import CRNN
    from torch import nn
    x, y = data.digits(size=16)
    extractor = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(),
                              nn.MaxPool2d((2, 1)))
    model = CRNN(extractor, vocab="0123456789", rnn_units=32, input_shape=(1, 16, 48))
    optimizer = s.optimizer("Adam", model.parameters(), 5e-3)
    order = torch.as_tensor(s.draw.integers(0, len(x), (4000, 3)))
    s.attach(model, optimizer)
    model.train()
    for chosen in order.split(s.batch(24))[:s.steps(130)]:
        words = ["".join(str(int(d)) for d in row) for row in y[chosen]]
        optimizer.zero_grad()
        model(torch.cat([x[chosen[:, i]] for i in range(3)], -1), words)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


@program("ultralytics-detect", "ultralytics.nn.tasks ultralytics.utils sklearn.datasets", "single modes")
def yolo(s):
    """A small YOLO finds two digits in a scene; the package's loss of boxes, classes and edges."""
    import types
    import torch
    from ultralytics.nn.tasks import DetectionModel
    model = DetectionModel({
        "nc": 10, "depth_multiple": 1.0, "width_multiple": 1.0, "scales": {}, "backbone": [
            [-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [16, 3, 2]], [-1, 1, "C2f", [16, True]],
            [-1, 1, "Conv", [32, 3, 2]], [-1, 1, "C2f", [32, True]], [-1, 1, "SPPF", [32, 5]]],
        "head": [[-1, 1, "nn.Upsample", [None, 2, "nearest"]], [[-1, 2], 1, "Concat", [1]],
                 [-1, 1, "C2f", [24]], [[8, 5], 1, "Detect", ["nc"]]]}, ch=1, verbose=False)
    model.args = types.SimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
    x, y = data.digits(size=16)
    optimizer = s.optimizer("AdamW", model.parameters(), 3e-3, weight_decay=5e-4)
    s.attach(model, optimizer)
    model.train()
    size = s.batch(8)
    for _ in range(s.steps(120)):
        scenes = torch.zeros(size, 1, 64, 64)
        chosen = torch.as_tensor(s.draw.integers(0, len(x), 2 * size))
        places = torch.as_tensor(s.draw.integers(0, [48, 24], (2 * size, 2)))
        places[1::2, 1] += 24
        for i, (up, left) in enumerate(places.tolist()):
            scenes[i // 2, 0, up:up + 16, left:left + 16] = x[chosen[i], 0] / 2 + 0.5
        boxes = torch.cat([(places.flip(1) + 8) / 64.0, torch.full((2 * size, 2), 0.25)], 1)
        optimizer.zero_grad()
        loss, _ = model.loss({"img": scenes, "batch_idx": torch.arange(2 * size) // 2,
                              "cls": y[chosen, None].float(), "bboxes": boxes})
        loss.sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()


@program("compressai-hyperprior", "compressai.models pytorch_msssim sklearn.datasets", "inputs batches")
def hyperprior(s):
    """A picture in few bits: rate and distortion, and an optimizer of its own for the quantiles."""
    import torch
    from compressai.models import ScaleHyperprior
    from pytorch_msssim import ssim
    model = ScaleHyperprior(8, 12)
    x, y = data.digits(channels=3, size=64)
    x = x[:400] / 2 + 0.5
    tails = [p for n, p in model.named_parameters() if n.endswith("quantiles")]
    optimizer = s.optimizer("Adam", [p for n, p in model.named_parameters() if not n.endswith("quantiles")],
                            1e-3)
    other = torch.optim.Adam(tails, 1e-3)
    s.attach(model, [optimizer, other])
    model.train()
    for inputs, _ in s.batches(x, y[:400], s.batch(8), s.steps(110)):
        optimizer.zero_grad()
        other.zero_grad()
        found = model(inputs)
        bits = sum(-torch.log2(p).sum() for p in found["likelihoods"].values()) / inputs[:, 0].numel()
        loss = bits + 50.0 * (found["x_hat"] - inputs).pow(2).mean() + \
            1.0 - ssim(found["x_hat"], inputs, data_range=1.0)
        loss.backward()
        s.score(-loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.aux_loss().backward()
        other.step()


@program("wavelets", "pytorch_wavelets sklearn.datasets", SIMPLE)
def wavelets(s):
    """Takes noise away in the bands of a wavelet: a network on the coefficients, back by the inverse."""
    import torch
    from pytorch_wavelets import DWTForward, DWTInverse
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.back = DWTForward(J=1, wave="db2", mode="periodization"), \
                DWTInverse(wave="db2", mode="periodization")
            self.low = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.SiLU(), nn.Conv2d(16, 1, 3, 1, 1))
            self.high = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.SiLU(), nn.Conv2d(16, 3, 3, 1, 1))

        def forward(self, x):
            low, (high,) = self.into(x)
            return self.back((low + self.low(low), [self.high(high.squeeze(1)).unsqueeze(1)]))

    y, _ = data.digits(size=16)
    x = y + 0.5 * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(16), s.steps(140)), nn.L1Loss())


@program("asteroid-convtasnet", "asteroid.models asteroid.losses", SIMPLE)
def tasnet(s):
    """Parts two voices (drawn tones), whichever comes first; the package's example of training."""
    import torch
    from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr
    from asteroid.models import ConvTasNet
    x, y = tones(600, 800)
    y = torch.stack([x[y < 3][:280], x[y >= 3][:280]], 1)
    x = y.sum(1)
    model = ConvTasNet(2, n_blocks=3, n_repeats=1, bn_chan=16, hid_chan=32, skip_chan=16, n_filters=32)
    loss = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    s.attach(model, optimizer)
    for inputs, targets in s.batches(x, y, s.batch(8), s.steps(110)):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


@program("nnaudio-mel", "nnAudio.features", ALL)
def nnaudio(s):
    """A spectrogram whose filters are trained too, before a convolution; heights of tones."""
    import torch
    from nnAudio.features import MelSpectrogram
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mel = MelSpectrogram(sr=8000, n_fft=256, n_mels=24, hop_length=128, trainable_mel=True,
                                      trainable_STFT=True, verbose=False)
            self.net = nn.Sequential(nn.Conv1d(24, 32, 3), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
                                     nn.Linear(32, 6))

        def forward(self, x):
            return self.net(torch.log(self.mel(x).clamp_min(0.0) + 1e-3))

    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 1e-3)
    train(s, model, optimizer, s.batches(*tones(), s.batch(16), s.steps(130)), nn.CrossEntropyLoss())


@program("auraloss-tcn", "auraloss.freq auraloss.time pytorch_tcn", SIMPLE)
def auraloss(s):
    """An amplifier that cuts off, by a temporal convolution; spectra of several lengths as the loss."""
    from auraloss.freq import MultiResolutionSTFTLoss
    from auraloss.time import ESRLoss
    from pytorch_tcn import TCN
    x = tones(240, 2048)[0][:, None] / 2.0
    y = (2.5 * x + 0.2).tanh() - 0.19
    model = TCN(1, [12, 12, 12], kernel_size=5, dropout=0.0, activation="leaky_relu", output_projection=1)
    spectra = MultiResolutionSTFTLoss(fft_sizes=[512, 256], hop_sizes=[64, 32], win_lengths=[256, 128])
    esr = ESRLoss()
    optimizer = s.optimizer("Adam", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(8), s.steps(110)),
          lambda found, y: spectra(found, y) + esr(found, y))


@program("torchlibrosa-cnn", "torchlibrosa", ALL + " modes")
def librosa(s):
    """Logarithms of mel bands, stripes dropped, a batch norm over bands, as in PANNs; mixup."""
    import torch
    from torch import nn
    from torchlibrosa import LogmelFilterBank, SpecAugmentation, Spectrogram

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.spectrogram = Spectrogram(n_fft=256, hop_length=64)
            self.bands = LogmelFilterBank(sr=8000, n_fft=256, n_mels=32, fmin=50)
            self.drop = SpecAugmentation(4, 1, 4, 1)
            self.norm = nn.BatchNorm2d(32)
            self.net = nn.Sequential(nn.Conv2d(1, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
                                     nn.AvgPool2d(2), nn.Conv2d(12, 24, 3, 1, 1, bias=False),
                                     nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                     nn.Dropout(0.2), nn.Linear(24, 6))

        def forward(self, x):
            x = self.norm(self.bands(self.spectrogram(x)).transpose(1, 3)).transpose(1, 3)
            return self.net(self.drop(x) if self.training else x)

    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    train(s, model, optimizer, s.batches(*tones(length=1024), s.batch(16), s.steps(110)),
          torch.nn.CrossEntropyLoss())


@program("smalldiffusion", "smalldiffusion", "single")
def small_diffusion(s):
    """The package's first example: a spiral from noise, in its own loop."""
    import smalldiffusion as package
    from torch.utils.data import DataLoader
    model = package.TimeInputMLP(hidden_dims=(16, 64, 64, 16))
    loader = DataLoader(package.Swissroll(3.1415 / 2, 5 * 3.1415, 100), batch_size=s.batch(100))
    schedule = package.ScheduleLogLinear(N=200, sigma_min=0.005, sigma_max=10)
    s.at_optimizer(lambda: model)
    for _ in package.training_loop(loader, model, schedule, epochs=s.steps(300), lr=s.rate(2e-3)):
        pass


@program("torchcfm-transport", "torchcfm.conditional_flow_matching torchcfm.models.models sklearn.datasets",
         "single inputs batches")
def cfm(s):
    """From noise to moons along straight ways, pairs matched by optimal transport; the tutorial's SELU."""
    import torch
    from torchcfm.conditional_flow_matching import ExactOptimalTransportConditionalFlowMatcher
    from torchcfm.models.models import MLP
    model = MLP(dim=2, time_varying=True, w=32)
    matcher = ExactOptimalTransportConditionalFlowMatcher(sigma=0.1)
    x, y = data.moons()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)

    def loss(x, _):
        t, xt, ut = matcher.sample_location_and_conditional_flow(torch.randn_like(x), x)
        return (model(torch.cat([xt, t[:, None]], -1)) - ut).pow(2).mean()

    own(s, model, optimizer, s.batches(x, y, s.batch(128), s.steps(180)), loss)


@program("torchgan-wasserstein", "torchgan.models torchgan.losses sklearn.datasets", "")
def wgan(s):
    """A DCGAN of the package with its losses of Wasserstein and its penalty, three critics to a step."""
    import torch
    from torchgan.losses import WassersteinDiscriminatorLoss, WassersteinGeneratorLoss
    from torchgan.models import DCGANDiscriminator, DCGANGenerator
    x, y = data.digits(size=16)
    players = torch.nn.ModuleDict({"generator": DCGANGenerator(encoding_dims=16, out_size=16, out_channels=1,
                                                               step_channels=8),
                                   "critic": DCGANDiscriminator(in_size=16, in_channels=1, step_channels=8)})
    generator, critic = players["generator"], players["critic"]
    of_generator, of_critic = WassersteinGeneratorLoss(), WassersteinDiscriminatorLoss(clip=(-0.05, 0.05))
    first = torch.optim.RMSprop(generator.parameters(), s.rate(1e-3))
    second = torch.optim.RMSprop(critic.parameters(), s.rate(1e-3))
    s.attach(players, [first, second])
    real = x.flatten(1).mean(0)
    for step, (inputs, _) in enumerate(s.batches(x, y, s.batch(16), s.steps(330))):
        noise = torch.randn(len(inputs), 16)
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-0.05, 0.05)
        second.zero_grad()
        of_critic(critic(inputs), critic(generator(noise).detach())).backward()
        second.step()
        if step % 3 == 2:
            first.zero_grad()
            made = generator(noise)
            of_generator(critic(made)).backward()
            first.step()
            s.score(-(made.detach().flatten(1).mean(0) - real).abs().mean())


@program("torch-pruning", "torch_pruning sklearn.datasets", ALL + " modes relu")
def pruning(s):
    """Training that makes groups of channels sparse: the package's penalty after each backward."""
    import torch
    import torch_pruning
    from torch import nn
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10))
    x, y = data.digits()
    pruner = torch_pruning.pruner.GroupNormPruner(
        model, x[:2], importance=torch_pruning.importance.GroupMagnitudeImportance(), pruning_ratio=0.5,
        ignored_layers=[model[-1]], reg=1e-4)
    optimizer = s.optimizer("SGD", model.parameters(), 0.05, momentum=0.9)
    s.attach(model, optimizer)
    pruner.update_regularizer()
    for inputs, labels in s.batches(x, y, s.batch(32), s.steps(130)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        pruner.regularize(model)
        optimizer.step()


@program("open-clip", "open_clip sklearn.datasets", "single")
def open_clip(s):
    """Digits and names of digits: two towers, a scale that is learnt, gradients clipped."""
    import torch
    from open_clip import CLIP, ClipLoss
    model = CLIP(16, {"image_size": 16, "layers": 2, "width": 32, "patch_size": 4, "head_width": 16},
                 {"context_length": 6, "vocab_size": 32, "width": 32, "heads": 2, "layers": 1})
    names = "zero one two three four five six seven eight nine".split()
    texts = torch.tensor([[ord(c) - 96 for c in name + "~"][:6] + [0] * (5 - len(name)) for name in names])
    texts[torch.arange(10), torch.tensor([len(n) for n in names])] = 31
    x, y = data.digits(channels=3, size=16)
    loss = ClipLoss()
    optimizer = s.optimizer("AdamW", model.parameters(), 1e-3, weight_decay=0.2, betas=(0.9, 0.98))
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x, y, s.batch(32), s.steps(120)):
        optimizer.zero_grad()
        loss(*model(inputs, texts[labels])).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6052)


@program("simclr-ntxent", "simclr simclr.modules info_nce sklearn.datasets", "single inputs batches modes")
def simclr(s):
    """Two noisy views of a digit and the package's NT-Xent, SGD with a warm-up of the rate."""
    import torch
    from simclr import SimCLR
    from simclr.modules import NT_Xent
    from torch import nn
    encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
                            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
    encoder.fc = nn.Linear(128, 10)
    model = SimCLR(encoder, 16, 128)
    x, y = data.digits()
    optimizer = s.optimizer("SGD", model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=30)
    s.attach(model, optimizer)
    size = s.batch(48)
    loss = NT_Xent(size, 0.5, 1)
    for inputs, _ in s.batches(x, y, size, s.steps(130)):
        views = [inputs + 0.4 * torch.randn_like(inputs) for _ in range(2)]
        optimizer.zero_grad()
        _, _, first, second = model(*views)
        loss(first, second).backward()
        optimizer.step()
        schedule.step()


@program("easyfsl-prototypes", "easyfsl.methods sklearn.datasets", "single modes")
def prototypes(s):
    """Five kinds, three examples each, at every step: the package's tutorial of few shots."""
    import torch
    from easyfsl.methods import PrototypicalNetworks
    from torch import nn
    backbone = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(16, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten())
    model = PrototypicalNetworks(backbone)
    x, y = data.digits()
    optimizer = s.optimizer("SGD", model.parameters(), 1e-2, momentum=0.9, weight_decay=5e-4)
    s.attach(model, optimizer)
    model.train()
    asked = s.batch(6)
    for _ in range(s.steps(130)):
        kinds = s.draw.permutation(10)[:5]
        drawn = [torch.as_tensor(s.draw.permutation((y == k).nonzero()[:, 0].numpy())[:3 + asked])
                 for k in kinds]
        optimizer.zero_grad()
        model.process_support_set(x[torch.cat([d[:3] for d in drawn])], torch.arange(5).repeat_interleave(3))
        scores = model(x[torch.cat([d[3:] for d in drawn])])
        nn.functional.cross_entropy(scores, torch.arange(5).repeat_interleave(asked)).backward()
        optimizer.step()
