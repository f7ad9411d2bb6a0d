"""Programs about pictures."""

import data
from session import program, train

TIMM = "timm.optim timm.loss timm.utils timm.scheduler sklearn.datasets"


@program("timm-resnet", TIMM, "single targets inputs batches classes logits modes")
def timm_resnet(s):
    import timm
    import torch
    from timm.models.resnet import BasicBlock, ResNet
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10, in_chans=1, channels=(8, 16, 16, 32))
    x, y = data.digits(size=16)
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=s.rate(0.05), momentum=0.9,
                                               weight_decay=2e-5)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 130), torch.nn.CrossEntropyLoss())


@program("timm-vit", TIMM, "single targets inputs batches classes logits")
def timm_vit(s):
    import timm
    from timm.models.vision_transformer import VisionTransformer
    model = VisionTransformer(img_size=16, patch_size=4, in_chans=1, num_classes=10, embed_dim=32,
                              depth=3, num_heads=2)
    x, y = data.digits(size=16)
    optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=s.rate(1e-3), weight_decay=0.05)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 150),
          timm.loss.LabelSmoothingCrossEntropy(0.1))


@program("timm-convnext", TIMM, "single targets inputs batches classes logits")
def timm_convnext(s):
    import timm
    from timm.models.convnext import ConvNeXt
    model = ConvNeXt(in_chans=1, num_classes=10, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32),
                     patch_size=2, drop_path_rate=0.1)
    x, y = data.digits(size=32)
    optimizer = timm.optim.create_optimizer_v2(model, "lamb", lr=s.rate(5e-3), weight_decay=0.02)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 150),
          timm.loss.LabelSmoothingCrossEntropy(0.1))


@program("timm-mixer-ema", TIMM, "single targets inputs batches classes logits")
def timm_mixer(s):
    """With the package's warm-up and cosine schedule and its averaged model beside."""
    import timm
    import torch
    from timm.models.mlp_mixer import MlpMixer
    from timm.scheduler import CosineLRScheduler
    model = MlpMixer(num_classes=10, img_size=16, in_chans=1, patch_size=4, num_blocks=2, embed_dim=32)
    average = timm.utils.ModelEmaV3(model, decay=0.99)
    optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=s.rate(2e-3), weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=150, warmup_t=10, warmup_lr_init=1e-5,
                                 t_in_epochs=False)
    s.attach(model, optimizer)
    x, y = data.digits(size=16)
    for step, (inputs, targets) in enumerate(s.batches(x, y, s.batch(32), 150)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        average.update(model)
        schedule.step_update(step + 1)


@program("torchvision-shufflenet", "torchvision sklearn.datasets",
         "single targets inputs batches classes logits modes")
def shufflenet(s):
    import torch
    from torchvision.models.shufflenetv2 import ShuffleNetV2
    model = ShuffleNetV2([2, 2, 2], [8, 16, 32, 32, 64], num_classes=10)
    x, y = data.digits(channels=3, size=32)
    optimizer = torch.optim.SGD(model.parameters(), s.rate(0.1), momentum=0.9, weight_decay=4e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 130)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 130),
          torch.nn.CrossEntropyLoss(label_smoothing=0.1), schedule)


@program("torchvision-regnet-ignite", "torchvision ignite.engine sklearn.datasets",
         "single targets inputs batches classes logits modes")
def regnet_ignite(s):
    """A RegNet in Ignite's trainer."""
    import torch
    from ignite.engine import create_supervised_trainer
    from torchvision.models.regnet import BlockParams, RegNet
    params = BlockParams([1, 1, 1, 1], [8, 8, 16, 32], [8, 8, 8, 8], [1.0] * 4, [2] * 4, 0.25)
    model = RegNet(params, num_classes=10, stem_width=8)
    x, y = data.digits(channels=3, size=16)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-3))
    s.attach(model, optimizer)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.CrossEntropyLoss())
    trainer.run(list(s.batches(x, y, s.batch(32), 130)), max_epochs=1)


@program("vit-pytorch-mae", "vit_pytorch.mae vit_pytorch.vit sklearn.datasets", "single inputs batches")
def masked_autoencoder(s):
    import torch
    from vit_pytorch.mae import MAE
    from vit_pytorch.vit import ViT
    encoder = ViT(image_size=16, patch_size=4, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=64,
                  channels=1, pool="mean")
    model = MAE(encoder=encoder, masking_ratio=0.75, decoder_dim=32, decoder_depth=1, decoder_heads=2,
                decoder_dim_head=16)
    x, y = data.digits(size=16)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-3))
    s.layers = "encoder.transformer*"
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(32), 150):
        loss = model(inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("vit-pytorch-cct", "vit_pytorch.cct sklearn.datasets",
         "single targets inputs batches classes logits modes")
def compact_transformer(s):
    import torch
    from vit_pytorch.cct import CCT
    model = CCT(img_size=16, embedding_dim=32, n_input_channels=1, n_conv_layers=1, num_layers=2,
                num_heads=2, mlp_ratio=2.0, num_classes=10, positional_embedding="learnable")
    x, y = data.digits(size=16)
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(1e-3), weight_decay=0.03)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 150), torch.nn.CrossEntropyLoss())


@program("denoising-diffusion", "denoising_diffusion_pytorch sklearn.datasets", "single inputs batches")
def diffusion(s):
    import torch
    from denoising_diffusion_pytorch import GaussianDiffusion1D, Unet1D
    model = Unet1D(dim=8, dim_mults=(1, 2), channels=1, attn_dim_head=8, attn_heads=2)
    diffusion = GaussianDiffusion1D(model, seq_length=64, timesteps=100, objective="pred_v")
    waves = torch.stack(list(data.waves()))[0] / 6 + 0.5
    optimizer = torch.optim.Adam(diffusion.parameters(), s.rate(8e-4), betas=(0.9, 0.99))
    s.layers = "model.mid*"
    s.attach(diffusion, optimizer)
    for inputs, _ in s.batches(waves, waves, s.batch(16), 150):
        loss = diffusion(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@program("diffusers-ddpm", "diffusers sklearn.datasets", "single inputs batches")
def diffusers_ddpm(s):
    import torch
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.optimization import get_cosine_schedule_with_warmup
    model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
                        block_out_channels=(8, 16), norm_num_groups=4,
                        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)
    noises = DDPMScheduler(num_train_timesteps=1000)
    x, y = data.digits()
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(1e-3))
    schedule = get_cosine_schedule_with_warmup(optimizer, 20, 150)
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(16), 150):
        noise = torch.randn_like(inputs)
        times = torch.randint(0, 1000, (len(inputs),))
        predicted = model(noises.add_noise(inputs, noise, times), times, return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(predicted, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@program("monai-unet", "monai.networks.nets monai.losses sklearn.datasets", "single targets inputs batches modes")
def monai_unet(s):
    """Segments the strokes of noisy digits with the Dice loss."""
    import torch
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet
    model = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(8, 16, 16), strides=(2, 2),
                 num_res_units=1)
    x, _ = data.digits(size=16)
    y = (x > 0).float()
    x = x + 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-3))
    train(s, model, optimizer, s.batches(x, y, s.batch(16), 130),
          DiceCELoss(to_onehot_y=True, softmax=True))


@program("vector-quantize", "vector_quantize_pytorch sklearn.datasets", "single inputs batches")
def vector_quantize(s):
    """The package's example of an autoencoder with a code book that is averaged, not trained."""
    import torch
    from torch import nn
    from vector_quantize_pytorch import Sequential, VectorQuantize
    model = Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), nn.GELU(), nn.Conv2d(8, 16, 3, padding=1),
        VectorQuantize(dim=16, codebook_size=32, accept_image_fmap=True),
        nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 8, 3, padding=1), nn.GELU(),
        nn.Conv2d(8, 1, 3, padding=1))
    x, y = data.digits(size=16)
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3))
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(32), 150):
        optimizer.zero_grad()
        out, _, commitment = model(inputs)
        ((out.clamp(-1, 1) - inputs).abs().mean() + 10 * commitment.sum()).backward()
        optimizer.step()


@program("siren", "siren_pytorch skimage.data", "single")
def siren(s):
    """One photograph as a function of the place, all of it at each step."""
    import torch
    import skimage
    from siren_pytorch import SirenNet, SirenWrapper
    net = SirenNet(dim_in=2, dim_hidden=48, dim_out=1, num_layers=3, w0_initial=30.0)
    model = SirenWrapper(net, image_width=32, image_height=32)
    photo = torch.tensor(skimage.data.camera()[::16, ::16] / 255.0, dtype=torch.float32)[None, None]
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    s.attach(model, optimizer)
    for _ in range(140):
        optimizer.zero_grad()
        model(photo).backward()
        optimizer.step()


@program("perceiver", "perceiver_pytorch sklearn.datasets", "single targets inputs batches classes logits")
def perceiver(s):
    import torch
    from perceiver_pytorch import Perceiver
    model = Perceiver(num_freq_bands=3, max_freq=8.0, depth=2, input_channels=1, num_latents=8,
                      latent_dim=32, cross_heads=1, latent_heads=2, cross_dim_head=16,
                      latent_dim_head=16, num_classes=10, self_per_cross_attn=1)
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(4e-3))
    train(s, model, optimizer, s.batches(x.permute(0, 2, 3, 1), y, s.batch(32), 150),
          torch.nn.CrossEntropyLoss())


@program("lightly-simsiam", "lightly.loss lightly.models.modules sklearn.datasets", "inputs modes")
def simsiam(s):
    """Two noisy views of one digit shall be predicted from one another."""
    import torch
    from lightly.loss import NegativeCosineSimilarity
    from lightly.models.modules import SimSiamPredictionHead, SimSiamProjectionHead

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, 2, 1), torch.nn.BatchNorm2d(8),
                                                torch.nn.ReLU(), torch.nn.Flatten())
            self.projection = SimSiamProjectionHead(128, 64, 32)
            self.prediction = SimSiamPredictionHead(32, 16, 32)

        def forward(self, x):
            z = self.projection(self.backbone(x))
            return z.detach(), self.prediction(z)

    model, criterion = Net(), NegativeCosineSimilarity()
    optimizer = torch.optim.SGD(model.parameters(), s.rate(0.06))
    x, y = data.digits()
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(64), 130):
        z0, p0 = model(inputs + 0.2 * torch.randn_like(inputs))
        z1, p1 = model(inputs + 0.2 * torch.randn_like(inputs))
        loss = 0.5 * (criterion(z0, p1) + criterion(z1, p0))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program("snntorch", "snntorch sklearn.datasets", "single targets inputs batches classes")
def spiking(s):
    """Leaky neurons that spike, over ten steps of time, by a surrogate gradient."""
    import snntorch
    import snntorch.functional
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.lif1 = nn.Linear(64, 48), snntorch.Leaky(beta=0.9)
            self.fc2, self.lif2 = nn.Linear(48, 10), snntorch.Leaky(beta=0.9)

        def forward(self, x):
            mem1, mem2, out = self.lif1.init_leaky(), self.lif2.init_leaky(), []
            for _ in range(10):
                spikes, mem1 = self.lif1(self.fc1(x), mem1)
                spikes, mem2 = self.lif2(self.fc2(spikes), mem2)
                out.append(spikes)
            return torch.stack(out)

    model = Net()
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-3), betas=(0.9, 0.999))
    train(s, model, optimizer, s.batches(x.flatten(1) + 1.0, y, s.batch(32), 150),
          snntorch.functional.ce_rate_loss())
