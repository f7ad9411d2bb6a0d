"""Programs about sequences: text, tags, series."""

import data
from session import MODES, program, train


def causal(s, model, optimizer, loss, clip=None, schedule=None):
    """Next letters; loss: of a batch of letters."""
    import torch
    letters = data.letters(33)
    s.attach(model, optimizer)
    for x, _ in s.batches(letters, letters, s.batch(16), 150):
        optimizer.zero_grad()
        loss(x).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()


@program("transformers-llama", "transformers.models.llama.modeling_llama", "single batches")
def llama(s):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64))
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3))
    causal(s, model, optimizer, lambda x: model(input_ids=x, labels=x).loss, 1.0,
           get_cosine_schedule_with_warmup(optimizer, 20, 150))


@program("transformers-gpt2-trainer", "transformers.models.gpt2.modeling_gpt2 transformers.trainer sonde.transformers",
         "single modes")
def gpt2_trainer(s):
    """In the package's Trainer with its defaults: AdamW, linear decay, clipping."""
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    hugging_face(s, model, [{"input_ids": x, "labels": x} for x in data.letters(32, 2000)], 1e-3)


@program("transformers-bert-mlm-trainer",
         "transformers.models.bert.modeling_bert transformers.trainer sonde.transformers", "single modes")
def bert_trainer(s):
    """Masked letters."""
    import torch
    from transformers import BertConfig, BertForMaskedLM
    model = BertForMaskedLM(BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32))
    letters = data.letters(32, 2000)
    hidden = torch.rand(letters.shape, generator=torch.Generator().manual_seed(0)) < 0.15
    rows = [{"input_ids": torch.where(h, 63, x), "labels": torch.where(h, x, -100)}
            for x, h in zip(letters, hidden)]
    hugging_face(s, model, rows, 2e-3)


@program("transformers-distilbert-classes-trainer",
         "transformers.models.distilbert.modeling_distilbert transformers.trainer sonde.transformers",
         "single targets modes")
def distilbert_trainer(s):
    """Whether a line is a licence's text or the same with each letter replaced by another."""
    import torch
    from transformers import DistilBertConfig, DistilBertForSequenceClassification
    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=64, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=32))
    x = data.letters(24, 2000)
    y = torch.arange(len(x)) % 2
    x = torch.where(y[:, None] == 1, 63 - x, x)
    x, y = s.arrays(x, y)
    hugging_face(s, model, [{"input_ids": a, "labels": b} for a, b in zip(x, y)], 1e-3, 250)


def trainer_callbacks(s):
    """For Transformers' Trainer: the plant, then Sonde's own callback, once for each mode."""
    from sonde.transformers import SondeCallback
    from transformers import TrainerCallback

    class Plant(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **more):
            s.attach(model, getattr(optimizer, "optimizer", optimizer), watch=False)

    class Watch(SondeCallback):
        def __init__(self, mode):
            super().__init__(**s.options(mode))
            self.mode = mode

        def on_train_begin(self, *arguments, **more):
            from sonde import torch_hooks
            torch_hooks._watched.clear()
            super().on_train_begin(*arguments, **more)
            s.watches[self.mode] = self.watch

    return [Plant(), *map(Watch, MODES)]


def trainer_options(s, rate, steps):
    return {"output_dir": s.folder, "max_steps": steps, "per_device_train_batch_size": s.batch(16),
            "learning_rate": s.rate(rate), "report_to": [], "disable_tqdm": True, "save_strategy": "no",
            "logging_steps": 50, "seed": s.seed, "use_cpu": True}


def hugging_face(s, model, rows, rate, steps=150):
    import torch
    from transformers import Trainer, TrainingArguments
    arguments = TrainingArguments(**trainer_options(s, rate, steps))
    torch.manual_seed(s.seed)
    Trainer(model=model, args=arguments, train_dataset=rows, callbacks=trainer_callbacks(s)).train()


@program("transformers-t5-adafactor", "transformers.models.t5.modeling_t5 transformers.optimization",
         "single batches modes")
def t5(s):
    """Turns a word round, with the package's Adafactor and its own step sizes."""
    import torch
    from transformers import Adafactor, T5Config, T5ForConditionalGeneration
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=2,
        decoder_start_token_id=0, pad_token_id=0, dropout_rate=0.1))
    optimizer = Adafactor(model.parameters(), lr=s.rate(1e-2), relative_step=False, scale_parameter=False)
    x = data.letters(8)
    s.attach(model, optimizer)
    for x, _ in s.batches(x, x, s.batch(16), 150):
        optimizer.zero_grad()
        model(input_ids=x, labels=x.flip(1)).loss.backward()
        optimizer.step()


@program("peft-lora", "transformers.models.gpt2.modeling_gpt2 peft", "single batches")
def lora(s):
    """Low-rank adapters beside a small model that is frozen, after some steps of training it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel
    base = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=40, n_embd=32, n_layer=2, n_head=2))
    before = torch.optim.AdamW(base.parameters(), 3e-3)
    letters = data.letters(33)
    for i in range(40):
        before.zero_grad()
        base(input_ids=letters[16 * i:16 * i + 16], labels=letters[16 * i:16 * i + 16]).loss.backward()
        before.step()
    s.losses.clear()
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=16, target_modules=["c_attn"],
                                            fan_in_fan_out=True, task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], s.rate(5e-3))
    causal(s, model, optimizer, lambda x: model(input_ids=63 - x, labels=63 - x).loss)


@program("x-transformers", "x_transformers", "single batches")
def x_transformers(s):
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
    model = AutoregressiveWrapper(TransformerWrapper(
        num_tokens=64, max_seq_len=64,
        attn_layers=Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True)))
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    causal(s, model, optimizer, model, 0.5)


@program("mambapy", "mambapy.mamba", "single batches")
def mamba(s):
    """A state-space language model."""
    import torch
    from mambapy.mamba import Mamba, MambaConfig
    model = torch.nn.Sequential(torch.nn.Embedding(64, 24),
                                Mamba(MambaConfig(d_model=24, n_layers=2, d_state=8)),
                                torch.nn.Linear(24, 64))
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3), betas=(0.9, 0.95))

    def loss(x):
        return torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    causal(s, model, optimizer, loss, 1.0)


@program("performer", "performer_pytorch", "single batches")
def performer(s):
    import torch
    from performer_pytorch import AutoregressiveWrapper, PerformerLM
    model = AutoregressiveWrapper(PerformerLM(
        num_tokens=64, max_seq_len=32, dim=32, depth=2, heads=2, causal=False, dim_head=16,
        nb_features=16, use_scalenorm=True))
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    causal(s, model, optimizer, lambda x: model(x, return_loss=True), 0.5)


@program("crf-tagger", "torchcrf", "single batches")
def crf(s):
    """Vowels, consonants, spaces and other signs of noisy letters by an LSTM and a random field."""
    import torch
    from torch import nn
    from torchcrf import CRF

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(64, 16), nn.LSTM(16, 24, batch_first=True)
            self.fc, self.crf = nn.Linear(24, 4), CRF(4, batch_first=True)

        def forward(self, x, tags):
            return -self.crf(self.fc(self.lstm(self.embedding(x))[0]), tags, reduction="token_mean")

    x = data.letters(20)
    y = torch.stack([x % 7 == 0, x % 7 < 3, x % 7 < 5, x >= 0], 2).int().argmax(2)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    s.attach(model, optimizer)
    for words, tags in s.batches(x, y, s.batch(16), 150):
        optimizer.zero_grad()
        model(words, tags).backward()
        optimizer.step()


@program("ncps-cfc", "ncps.torch ncps.wirings statsmodels.datasets.sunspots", "single targets inputs batches")
def liquid(s):
    """A closed-form continuous-time network predicts sunspots."""
    import torch
    from ncps.torch import CfC
    from ncps.wirings import AutoNCP

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = CfC(1, AutoNCP(20, 1))

        def forward(self, x):
            return self.rnn(x[..., None])[0][:, -1]

    model = Net()
    x, y = data.sunspots(16)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-2))
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 150), torch.nn.MSELoss())


@program("nbeats-neuralforecast", "neuralforecast.models neuralforecast.utils sonde.lightning", "single")
def nbeats(s):
    """Monthly passengers of an airline, in the package's trainer (Lightning) with its defaults."""
    from neuralforecast import NeuralForecast
    from neuralforecast.models import NBEATS
    from neuralforecast.utils import AirPassengersDF
    from trainers import callbacks
    model = NBEATS(h=12, input_size=24, max_steps=150, stack_types=["identity", "trend", "seasonality"],
                   mlp_units=[[32, 32]] * 3, learning_rate=s.rate(1e-3), scaler_type="standard",
                   windows_batch_size=s.batch(32), random_seed=s.seed, callbacks=callbacks(s),
                   enable_progress_bar=False, enable_model_summary=False, logger=False,
                   enable_checkpointing=False, accelerator="cpu")
    NeuralForecast(models=[model], freq="ME").fit(AirPassengersDF)
