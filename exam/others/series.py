"""Programs about series, letters, sentences and spikes, from packages that parts 1 to 4 do not use."""

import data
from scenes import own
from sequences import next_letter
from session import program, train

ALL = "single targets inputs batches classes logits"
SIMPLE = "single targets inputs batches"


def letters(s, model, optimizer, size=16, steps=140, length=33, loss=None):
    text = data.letters(length)
    loss = loss or next_letter(model)
    own(s, model, optimizer, s.batches(text, text, s.batch(size), s.steps(steps)), lambda x, _: loss(x))


def swings(window, ahead, channels=1, count=1000):
    """Drawn sums of swings with noise: windows and what follows."""
    import numpy as np
    import torch
    draw = np.random.default_rng(0)
    t = np.arange(window + ahead) + draw.uniform(0, 100, (count, 1))
    parts = [np.sin(t / (2.0 + c)) + 0.5 * np.sin(t / (5.0 + c)) + 0.1 * draw.normal(size=t.shape)
             for c in range(channels)]
    made = torch.tensor(np.stack(parts, -1), dtype=torch.float32)
    return made[:, :window], made[:, window:]


@program("nbeats-pytorch", "nbeats_pytorch.model", SIMPLE)
def nbeats(s):
    """Trend, season and a generic stack, as in the package's example of a loop."""
    import torch
    from nbeats_pytorch.model import NBeatsNet
    model = NBeatsNet(stack_types=(NBeatsNet.TREND_BLOCK, NBeatsNet.SEASONALITY_BLOCK, NBeatsNet.GENERIC_BLOCK),
                      forecast_length=6, backcast_length=24, thetas_dim=(3, 6, 8), nb_blocks_per_stack=1,
                      hidden_layer_units=32)
    x, y = swings(24, 6)
    optimizer = s.optimizer("Adam", model.parameters(), 1e-3)
    own(s, model, optimizer, s.batches(x[..., 0], y[..., 0], s.batch(32), s.steps(150)),
        lambda x, y: torch.nn.functional.mse_loss(model(x)[1].squeeze(-1), y))


@program("tsmixer", "torchtsmixer", SIMPLE + " modes")
def tsmixer(s):
    """Mixes times and measures by turns, with batch norm and dropout."""
    import torch
    from torchtsmixer import TSMixer
    model = TSMixer(24, 6, 4, num_blocks=2, ff_dim=16, dropout_rate=0.1)
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    train(s, model, optimizer, s.batches(*swings(24, 6, 4), s.batch(32), s.steps(140)), torch.nn.MSELoss())


@program("mingru", "minGRU_pytorch", "single batches")
def mingru(s):
    """A recurrent network that is computed all at once."""
    from minGRU_pytorch.minLM import minLM
    model = minLM(num_tokens=64, dim=32, depth=2, ff_mult=2, enable_conv=True)
    letters(s, model, s.optimizer("Adam", model.parameters(), 2e-3))


@program("mlm-linformer", "mlm_pytorch linformer", "single batches")
def masked(s):
    """Hidden letters by attention of few keys, in the package's wrapper."""
    from linformer import LinformerLM
    from mlm_pytorch import MLM
    net = LinformerLM(num_tokens=66, dim=32, seq_len=32, depth=2, heads=2, k=16)
    model = MLM(net, mask_token_id=65, pad_token_id=64, mask_prob=0.25, replace_prob=0.9)
    letters(s, model, s.optimizer("Adam", model.parameters(), 3e-3), length=32, loss=model)


@program("nystromformer", "nystrom_attention sklearn.datasets", ALL)
def nystrom(s):
    """A digit as 64 points in a row, attention over landmarks."""
    import torch
    from nystrom_attention import Nystromformer
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.place = nn.Linear(1, 24), nn.Parameter(0.1 * torch.randn(64, 24))
            self.body = Nystromformer(dim=24, dim_head=12, heads=2, depth=1, num_landmarks=16,
                                      attn_values_residual_conv_kernel=9)
            self.out = nn.Linear(24, 10)

        def forward(self, x):
            return self.out(self.body(self.into(x.flatten(1)[..., None]) + self.place).mean(1))

    model = Net()
    optimizer = s.optimizer("AdamW", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(*data.digits(), s.batch(16), s.steps(140)), nn.CrossEntropyLoss())


@program("litgpt", "litgpt.model litgpt.utils", "single batches")
def litgpt(s):
    """A small Pythia of the package, with warm-up, cosine and clipping, as its pretraining."""
    import torch
    from litgpt.model import GPT, Config
    model = GPT(Config(block_size=32, vocab_size=64, padded_vocab_size=64, n_layer=2, n_head=2, n_embd=32,
                       rotary_percentage=0.25, parallel_residual=True))
    steps = s.steps(140)
    optimizer = s.optimizer("AdamW", model.parameters(), 3e-3, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=20),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 20, 3e-4)], [20])
    loss, text = next_letter(model), data.letters(33)
    s.attach(model, optimizer)
    for x, _ in s.batches(text, text, s.batch(16), steps):
        optimizer.zero_grad()
        loss(x).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@program("bitlinear", "bitlinear_pytorch.bitlinear", "single batches")
def bitlinear(s):
    """A recurrent reader of letters with layers of one and a half bits, gradients straight through."""
    from bitlinear_pytorch.bitlinear import BitLinear
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.rnn = nn.Embedding(64, 32), nn.GRU(32, 32, batch_first=True)
            self.first, self.last = BitLinear(32, 64), nn.Linear(64, 64)

        def forward(self, x):
            return self.last(nn.functional.gelu(self.first(self.rnn(self.embedding(x))[0])))

    model = Net()
    letters(s, model, s.optimizer("Adam", model.parameters(), 5e-3))


@program("loralib", "loralib sklearn.datasets", "single targets inputs batches classes logits relu")
def loralib(s):
    """Learns digits, then digits of the other color by low ranks and biases alone."""
    import loralib as lora
    import torch
    from torch import nn
    x, y = data.digits()
    model = nn.Sequential(nn.Flatten(), lora.Linear(64, 64, r=4, lora_alpha=8), nn.ReLU(),
                          lora.Linear(64, 64, r=4, lora_alpha=8), nn.ReLU(), nn.Linear(64, 10))
    first = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        chosen = torch.as_tensor(s.draw.integers(0, len(x), 64))
        first.zero_grad()
        nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
        first.step()
    s.losses.clear()
    model.zero_grad(set_to_none=True)
    lora.mark_only_lora_as_trainable(model, bias="all")
    optimizer = s.optimizer("AdamW", [p for p in model.parameters() if p.requires_grad], 3e-3)
    train(s, model, optimizer, s.batches(-x, y, s.batch(32), s.steps(140)), nn.CrossEntropyLoss())


@program("lycoris-lokr", "lycoris sklearn.datasets", "targets inputs batches classes single layers")
def lycoris(s):
    """Another adapter, Kronecker products beside frozen layers, for digits in noise."""
    import torch
    from lycoris import create_lycoris
    from torch import nn
    x, y = data.digits()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(),
                        nn.Linear(64, 10))
    first = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(60):
        chosen = torch.as_tensor(s.draw.integers(0, len(x), 64))
        first.zero_grad()
        nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
        first.step()
    s.losses.clear()
    net.zero_grad(set_to_none=True)
    net.requires_grad_(False)
    adapter = create_lycoris(net, 1.0, linear_dim=4, linear_alpha=2, algo="lokr", factor=8)
    adapter.apply_to()
    model = nn.ModuleDict({"net": net, "adapter": adapter})
    model.forward = net.forward
    optimizer = s.optimizer("AdamW", adapter.parameters(), 3e-3)
    train(s, model, optimizer, s.batches(x.flip(3), y, s.batch(32), s.steps(140)), nn.CrossEntropyLoss())


@program("torch-struct-crf", "torch_struct", "single batches")
def struct(s):
    """Which words of drawn strings are names: an LSTM under a chain of labels."""
    import torch
    import torch_struct
    from torch import nn
    draw = torch.Generator().manual_seed(0)
    words = torch.randint(0, 20, (1200, 10), generator=draw)
    labels = ((words.roll(1, 1) % 3 == 0) & (words > 6)).long()
    labels[:, 0] = 0

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.rnn = nn.Embedding(20, 16), nn.LSTM(16, 16, batch_first=True, bidirectional=True)
            self.out, self.moves = nn.Linear(32, 2), nn.Parameter(torch.zeros(2, 2))

        def forward(self, x):
            found = self.out(self.rnn(self.embedding(x))[0])
            pairs = found[:, 1:, :, None] + self.moves
            first = torch.zeros_like(pairs)
            first[:, 0] = found[:, 0, None, :]
            return torch_struct.LinearChainCRF(pairs + first)

    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 1e-2)
    own(s, model, optimizer, s.batches(words, labels, s.batch(16), s.steps(120)), lambda x, y:
        -model(x).log_prob(torch_struct.LinearChainCRF.struct.to_parts(y, 2).type(torch.float32)).mean())


@program("torchkge-complex", "torchkge.models torchkge.sampling torchkge.data_structures torchkge.utils", "")
def complex_graph(s):
    """Who is who's kin in drawn families: ComplEx against corrupted facts, as the package's first example."""
    import numpy as np
    import pandas
    import torch
    from torchkge.data_structures import KnowledgeGraph
    from torchkge.models import ComplExModel
    from torchkge.sampling import BernoulliNegativeSampler
    from torchkge.utils import BinaryCrossEntropyLoss
    draw = np.random.default_rng(0)
    clan = draw.integers(0, 8, 80)
    pairs = draw.integers(0, 80, (6000, 2))
    first, second = clan[pairs].T
    kin = np.select([first == second, (first + 1) % 8 == second], [1, 2])
    rows = [(f"p{a}", f"p{b}", f"r{k}") for (a, b), k in zip(pairs, kin) if k]
    graph = KnowledgeGraph(pandas.DataFrame(rows, columns=["from", "to", "rel"]))
    model = ComplExModel(16, graph.n_ent, graph.n_rel)
    loss, sampler = BinaryCrossEntropyLoss(), BernoulliNegativeSampler(graph)
    optimizer = s.optimizer("Adam", model.parameters(), 1e-2, weight_decay=1e-5)
    s.attach(model, optimizer)
    for _ in range(s.steps(150)):
        chosen = torch.as_tensor(s.draw.integers(0, len(rows), s.batch(128)))
        h, t, r = graph.head_idx[chosen], graph.tail_idx[chosen], graph.relations[chosen]
        wrong = sampler.corrupt_batch(h, t, r)
        optimizer.zero_grad()
        value = loss(*model(h, t, r, *wrong))
        value.backward()
        optimizer.step()
        s.score(-value.detach())


@program("soft-moe", "soft_moe_pytorch sklearn.datasets", ALL)
def soft_moe(s):
    """Patches of a digit flow in parts to four experts."""
    import torch
    from soft_moe_pytorch import SoftMoE
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.place = nn.Conv2d(1, 32, 2, 2), nn.Parameter(0.1 * torch.randn(16, 32))
            self.mix = nn.TransformerEncoderLayer(32, 2, 32, 0.0, batch_first=True)
            self.experts, self.out = SoftMoE(32, seq_len=16, num_experts=4, expert_mult=1), nn.Linear(32, 10)

        def forward(self, x):
            x = self.mix(self.into(x).flatten(2).mT + self.place)
            return self.out((x + self.experts(x)).mean(1))

    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    train(s, model, optimizer, s.batches(*data.digits(), s.batch(16), s.steps(130)), nn.CrossEntropyLoss())


@program("sentence-transformers", "sentence_transformers sentence_transformers.losses datasets tokenizers "
         "transformers.models.bert.modeling_bert sonde.transformers", "single modes")
def sentences(s):
    """Words that mean a number lie near it: pairs and the others of the batch, in the package's trainer."""
    import random
    import torch
    from datasets import Dataset
    from language import trainer_callbacks, trainer_options
    from loops import letters_tokenizer
    from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer,
                                       SentenceTransformerTrainingArguments)
    from sentence_transformers import models as parts
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import BertConfig, BertModel
    torch.manual_seed(s.seed)
    folder = s.folder + "/bert"
    BertModel(BertConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                         intermediate_size=64, max_position_embeddings=32)).save_pretrained(folder)
    letters_tokenizer().save_pretrained(folder)
    word = parts.Transformer(folder, max_seq_length=24)
    model = SentenceTransformer(modules=[word, parts.Pooling(word.get_word_embedding_dimension())], device="cpu")
    draw, names = random.Random(0), "zero one two three four five six seven eight nine".split()
    rows = [{"anchor": " ".join(names[d] for d in ds), "positive": "".join(map(str, ds))}
            for ds in ([draw.randrange(10) for _ in range(3)] for _ in range(2000))]
    options = {**trainer_options(s, 1e-3, 120), "per_device_train_batch_size": s.batch(16)}
    SentenceTransformerTrainer(model=model, args=SentenceTransformerTrainingArguments(**options),
                               train_dataset=Dataset.from_list(rows), loss=MultipleNegativesRankingLoss(model),
                               callbacks=trainer_callbacks(s)).train()


@program("sinabs", "sinabs sinabs.layers sklearn.datasets", "single targets inputs batches classes logits layers")
def sinabs(s):
    """Neurons that leak and fire, ten moments to a digit, the mean of what the last ones hold."""
    import sinabs as package
    import sinabs.layers as sl
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 48), sl.LIF(tau_mem=10.0), nn.Linear(48, 10),
                                     sl.ExpLeak(tau_mem=10.0))

        def forward(self, x):
            package.reset_states(self.net)
            return self.net(x.flatten(1)[:, None].repeat(1, 10, 1)).mean(1) * 8

    model = Net()
    x, y = data.digits()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    train(s, model, optimizer, s.batches(x / 2 + 0.5, y, s.batch(32), s.steps(130)), nn.CrossEntropyLoss())
