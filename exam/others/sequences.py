"""More programs about sequences: letters, proteins, speech, series."""

import data
from language import causal
from session import program, train


def next_letter(model):
    import torch

    def loss(x):
        return torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    return loss


@program("reformer", "reformer_pytorch lion_pytorch", "single batches")
def reformer(s):
    """Reversible layers, hashed attention, and Lion."""
    from lion_pytorch import Lion
    from reformer_pytorch import ReformerLM
    model = ReformerLM(num_tokens=64, dim=32, depth=2, max_seq_len=32, heads=2, dim_head=16,
                       bucket_size=8, n_hashes=2, causal=True, ff_chunks=1)
    causal(s, model, Lion(model.parameters(), s.rate(1e-3), weight_decay=1e-2), next_letter(model))


@program("electra", "electra_pytorch reformer_pytorch", "single batches")
def electra(s):
    """A small network guesses hidden letters, another tells which letters were guessed."""
    import torch
    from electra_pytorch import Electra
    from reformer_pytorch import ReformerLM
    sizes = {"num_tokens": 66, "depth": 1, "max_seq_len": 40, "dim_head": 16, "bucket_size": 8,
             "heads": 2, "ff_chunks": 1}
    generator, reader = ReformerLM(emb_dim=16, dim=16, **sizes), ReformerLM(emb_dim=16, dim=32, **sizes)
    generator.token_emb = reader.token_emb
    generator.pos_emb = reader.pos_emb

    model = Electra(generator, torch.nn.Sequential(reader, torch.nn.Linear(66, 1),
                                                torch.nn.Sigmoid()), mask_token_id=65)
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3))
    s.attach(model, optimizer)
    letters = data.letters(32)
    for x, _ in s.batches(letters, letters, s.batch(16), 140):
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()


@program("mixture-of-experts", "st_moe_pytorch schedulefree", "single batches")
def experts(s):
    """Sparsely chosen experts with a loss that balances them, by an optimizer without a schedule."""
    import torch
    from schedulefree import AdamWScheduleFree
    from st_moe_pytorch import MoE, SparseMoEBlock
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.rnn = nn.Embedding(64, 32), nn.GRU(32, 32, batch_first=True)
            self.experts = SparseMoEBlock(MoE(dim=32, num_experts=4, expert_hidden_mult=2))
            self.head = nn.Linear(32, 64)

        def forward(self, x):
            x, balance, *_ = self.experts(self.rnn(self.embedding(x))[0])
            return self.head(x), balance

    model = Net()
    optimizer = AdamWScheduleFree(model.parameters(), lr=s.rate(3e-3), warmup_steps=20)
    optimizer.train()

    def loss(x):
        found, balance = model(x[:, :-1])
        return torch.nn.functional.cross_entropy(found.flatten(0, 1), x[:, 1:].flatten()) + balance

    causal(s, model, optimizer, loss)


@program("megabyte", "MEGABYTE_pytorch", "single batches")
def megabyte(s):
    """Letters in patches: a transformer over patches, another within one."""
    import torch
    from MEGABYTE_pytorch import MEGABYTE
    model = MEGABYTE(num_tokens=64, dim=(32, 24), depth=(1, 1), max_seq_len=(12, 3), dim_head=16, heads=2)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    causal(s, model, optimizer, lambda x: model(x, return_loss=True), 0.5)


@program("gmlp", "g_mlp_pytorch", "single batches")
def gmlp(s):
    """Gates over places in place of attention; layers are dropped at random."""
    import torch
    from g_mlp_pytorch import gMLP
    model = gMLP(num_tokens=64, dim=32, depth=3, seq_len=32, causal=True, prob_survival=0.8, attn_dim=16)
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3))
    causal(s, model, optimizer, next_letter(model))


@program("esm2-masked", "esm", "single batches")
def esm2(s):
    """Masked residues of drawn proteins that repeat themselves."""
    import esm
    import torch
    alphabet = esm.data.Alphabet.from_architecture("ESM-1b")
    model = esm.model.esm2.ESM2(num_layers=2, embed_dim=32, attention_heads=2, alphabet=alphabet)
    part = torch.randint(4, 24, (1500, 6), generator=torch.Generator().manual_seed(0))
    rows = torch.cat([torch.zeros(1500, 1, dtype=torch.int64), part, part, part], 1)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(4e-3), betas=(0.9, 0.98))
    s.attach(model, optimizer)
    for x, _ in s.batches(rows, rows, s.batch(16), 150):
        hidden = (torch.rand(x.shape) < 0.15) & (x > 3)
        logits = model(x.masked_fill(hidden, alphabet.mask_idx))["logits"]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits[hidden], x[hidden]).backward()
        optimizer.step()


@program("conformer-ctc", "conformer", "single modes batches inputs")
def conformer(s):
    """Drawn syllables: three of five notes with pauses between, read by a Conformer and CTC."""
    import torch
    from conformer import Conformer
    from torch import nn
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(1, 6, (800, 3), generator=draw)
    notes = torch.nn.functional.one_hot(y, 8).float()[..., None].repeat(1, 1, 1, 5)
    x = nn.functional.pad(notes, (0, 3)).permute(0, 1, 3, 2).reshape(800, 24, 8)
    x = x + 0.2 * torch.randn(x.shape, generator=draw)
    model = nn.Sequential(nn.Linear(8, 24), Conformer(24, depth=1, dim_head=12, heads=2, ff_mult=2,
                                                      conv_kernel_size=7, ff_dropout=0.1), nn.Linear(24, 6))
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(4e-3))

    def loss(found, y):
        sizes = torch.full((len(y),), 24), torch.full((len(y),), 3)
        return nn.functional.ctc_loss(found.log_softmax(-1).transpose(0, 1), y, *sizes)

    train(s, model, optimizer, s.batches(x, y, s.batch(16), 140), loss)


@program("itransformer", "iTransformer prodigyopt", "single batches inputs")
def itransformer(s):
    """Four series that go together, foretold, by an optimizer that finds its own step size."""
    import torch
    from iTransformer import iTransformer
    from prodigyopt import Prodigy
    t = torch.arange(700.0)[:, None]
    series = torch.sin(t / torch.tensor([3.0, 5.0, 7.0, 11.0])) + torch.sin(t / 4.0)
    series = series + 0.05 * torch.randn(series.shape, generator=torch.Generator().manual_seed(0))
    x = torch.stack([series[i:i + 24] for i in range(660)])
    y = torch.stack([series[i + 24:i + 30] for i in range(660)])
    model = iTransformer(num_variates=4, lookback_len=24, depth=2, dim=32, pred_length=6, dim_head=16,
                         heads=2, use_reversible_instance_norm=True, num_residual_streams=1,
                         flash_attn=False)
    optimizer = Prodigy(model.parameters(), lr=s.rate(1.0), weight_decay=0.01)
    s.attach(model, optimizer)
    for inputs, targets in s.batches(x, y, s.batch(16), 140):
        optimizer.zero_grad()
        model(inputs, targets=targets).backward()
        optimizer.step()


@program("torchcde", "torchcde", "single")
def neural_cde(s):
    """Which way does a spiral turn? A differential equation driven by the path; the package's example."""
    import torch
    import torchcde
    from torch import nn

    class Func(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2 = nn.Linear(8, 32), nn.Linear(32, 24)

        def forward(self, t, z):
            return self.linear2(self.linear1(z).relu()).tanh().view(z.size(0), 8, 3)

    class NeuralCDE(nn.Module):
        def __init__(self):
            super().__init__()
            self.func, self.initial, self.readout = Func(), nn.Linear(3, 8), nn.Linear(8, 1)

        def forward(self, coefficients):
            x = torchcde.CubicSpline(coefficients)
            z = torchcde.cdeint(X=x, func=self.func, z0=self.initial(x.evaluate(x.interval[0])),
                                t=x.interval, adjoint=False, method="rk4", options={"step_size": 2.0})
            return self.readout(z[:, 1]).squeeze(-1)

    draw = torch.Generator().manual_seed(0)
    t = torch.linspace(0, 6, 16)
    start, way = 6 * torch.rand(256, 1, generator=draw), torch.arange(256) % 2
    angle = start + t * (1 - 2 * way[:, None])
    paths = torch.stack([t.repeat(256, 1), angle.cos() / (1 + t / 2), angle.sin() / (1 + t / 2)], 2)
    paths[..., 1:] += 0.02 * torch.randn(256, 16, 2, generator=draw)
    coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(paths)
    model = NeuralCDE()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-2))
    train(s, model, optimizer, s.batches(coefficients, way.float(), s.batch(32), 120),
          nn.functional.binary_cross_entropy_with_logits)


@program("xlstm", "xlstm", "single batches")
def xlstm(s):
    """Matrix memories in place of an LSTM's cells."""
    import torch
    from torch import nn
    from xlstm import mLSTMBlockConfig, mLSTMLayerConfig, xLSTMBlockStack, xLSTMBlockStackConfig
    stack = xLSTMBlockStack(xLSTMBlockStackConfig(
        mlstm_block=mLSTMBlockConfig(mlstm=mLSTMLayerConfig(conv1d_kernel_size=4, num_heads=2)),
        context_length=32, num_blocks=2, embedding_dim=32))
    model = nn.Sequential(nn.Embedding(64, 32), stack, nn.Linear(32, 64))
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(2e-3))
    causal(s, model, optimizer, next_letter(model), 1.0)


@program("labml-hyper-lstm", "labml_nn.hypernetworks.hyper_lstm pytorch_optimizer", "single batches")
def hyper_lstm(s):
    """A small LSTM scales the weights of a larger one at each letter; by ADOPT."""
    import torch
    from labml_nn.hypernetworks.hyper_lstm import HyperLSTM
    from pytorch_optimizer import ADOPT
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(64, 16), nn.Linear(24, 64)
            self.rnn = HyperLSTM(input_size=16, hidden_size=24, hyper_size=8, n_z=4, n_layers=1)

        def forward(self, x):
            return self.head(self.rnn(self.embedding(x.T))[0]).transpose(0, 1)

    model, letters = Net(), data.letters(13)
    optimizer = ADOPT(model.parameters(), lr=s.rate(5e-3))
    s.attach(model, optimizer)
    for x, _ in s.batches(letters, letters, s.batch(16), 140):
        optimizer.zero_grad()
        next_letter(model)(x).backward()
        optimizer.step()
