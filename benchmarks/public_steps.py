"""Steps of public models and training scripts, as a user would wrap them: `--step benchmarks.public_steps:NAME`.

From the Python Package Index: transformers, timm, diffusers, torch_geometric. From GitHub, their folders on PYTHONPATH:
karpathy/nanoGPT, facebookresearch/dlrm, and of pytorch/examples word_language_model, mnist, siamese_network and
time_sequence_prediction. Inputs are random; sizes are those of the scripts or smaller, for a CPU.
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def _training(model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, clip: float | None = None) -> Any:
    """A step that trains `model` on `loss()`."""

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return value

    step.module = model  # type: ignore[attr-defined]
    return step


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def nanogpt(batch: int) -> Any:
    """karpathy/nanoGPT: the sizes that its README gives for a CPU, its own optimizer and clipping."""
    script = importlib.import_module("model")
    model = script.GPT(script.GPTConfig(block_size=64, vocab_size=65, n_layer=4, n_head=4, n_embd=128, dropout=0.0))
    tokens = torch.randint(65, (batch, 65))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    return _training(model, lambda: model(inputs, targets)[1], optimizer, clip=1.0)


def bert(batch: int) -> Any:
    """transformers: a BERT of four layers learns masked words."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                                       intermediate_size=1024))  # fmt: skip
    words = torch.randint(30000, (batch, 64))
    return _training(model, lambda: model(input_ids=words, labels=words).loss, _adamw(model))


def llama_decode(batch: int) -> Any:
    """transformers: a small Llama writes sixteen tokens after a prompt of 32, with its cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
                                         num_attention_heads=4, eos_token_id=None)).eval()  # fmt: skip
    prompt = torch.randint(8000, (batch, 32))

    def step() -> Any:
        return model.generate(prompt, max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0)

    step.module = model  # type: ignore[attr-defined]
    return step


def wav2vec2(batch: int) -> Any:
    """transformers: half a second of speech through a small Wav2Vec2, trained with CTC."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    model = Wav2Vec2ForCTC(Wav2Vec2Config(hidden_size=192, num_hidden_layers=3, num_attention_heads=4, vocab_size=32,
                                          intermediate_size=768, conv_dim=(128,) * 7, mask_time_prob=0.0))  # fmt: skip
    audio, letters = torch.randn(batch, 8000), torch.randint(1, 32, (batch, 6))
    return _training(model, lambda: model(audio, labels=letters).loss, _adamw(model))


def vit(batch: int) -> Any:
    """timm: vit_tiny_patch16_224, trained with momentum."""
    import timm

    model = timm.create_model("vit_tiny_patch16_224")
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return _training(model, lambda: functional.cross_entropy(model(images), labels), optimizer)


def mobilenet(batch: int) -> Any:
    """timm: mobilenetv3_small_100 in inference."""
    import timm

    model, images = timm.create_model("mobilenetv3_small_100").eval(), torch.randn(batch, 3, 224, 224)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(images)

    step.module = model  # type: ignore[attr-defined]
    return step


def diffusion(batch: int) -> Any:
    """diffusers: a UNet2DModel of three levels learns the noise of images of 32 x 32."""
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(sample_size=32, layers_per_block=1, block_out_channels=(32, 64, 64),
                        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8)  # fmt: skip
    scheduler, images = DDPMScheduler(), torch.randn(batch, 3, 32, 32)

    def loss() -> torch.Tensor:
        noise, times = torch.randn_like(images), torch.randint(1000, (batch,))
        return functional.mse_loss(model(scheduler.add_noise(images, noise, times), times).sample, noise)

    return _training(model, loss, _adamw(model), clip=1.0)


def graph(batch: int) -> Any:
    """torch_geometric: a GIN over `batch` graphs of 200 nodes and 800 edges, as in its mutag_gin example."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GIN, MLP, global_add_pool

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn, self.mlp = GIN(32, 64, 5, dropout=0.5), MLP([64, 64, 2], norm=None, dropout=0.5)

        def forward(self, data: Any) -> torch.Tensor:
            return self.mlp(global_add_pool(self.gnn(data.x, data.edge_index), data.batch, batch))

    model, labels = Net(), torch.randint(2, (batch,))
    graphs = Batch.from_data_list([Data(torch.randn(200, 32), torch.randint(200, (2, 800))) for _ in range(batch)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return _training(model, lambda: functional.cross_entropy(model(graphs), labels), optimizer)


def recommender(batch: int) -> Any:
    """facebookresearch/dlrm: eight tables of 20,000 rows, sixteen samples to a unit of the batch, SGD."""
    import numpy as np

    script = importlib.import_module("dlrm_s_pytorch")
    tables, samples = 8, 16 * batch
    model = script.DLRM_Net(64, np.full(tables, 20000), np.array([13, 512, 256, 64]),
                            np.array([64 + tables * (tables + 1) // 2, 512, 256, 1]), arch_interaction_op="dot",
                            sigmoid_bot=-1, sigmoid_top=2)  # fmt: skip
    dense, clicks = torch.rand(samples, 13), torch.randint(2, (samples, 1)).float()
    offsets, rows = torch.arange(samples).repeat(tables, 1), torch.randint(20000, (tables, samples))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _training(model, lambda: model.loss_fn(model(dense, offsets, list(rows)), clicks), optimizer)


def language(batch: int) -> Any:
    """pytorch/examples, word_language_model: its LSTM of two layers, 35 words, clipping and plain updates."""
    model = importlib.import_module("word_language_model.model").RNNModel("LSTM", 10000, 200, 200, 2, 0.2)
    words, hidden = torch.randint(10000, (36, batch)), model.init_hidden(batch)

    def step() -> torch.Tensor:
        nonlocal hidden
        model.zero_grad()
        hidden = tuple(state.detach() for state in hidden)
        output, hidden = model(words[:-1], hidden)
        loss = functional.nll_loss(output, words[1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
        return loss

    step.module = model  # type: ignore[attr-defined]
    return step


def siamese(batch: int) -> Any:
    """pytorch/examples, siamese_network: two images through one ResNet-18, Adadelta."""
    model = importlib.import_module("siamese_network.main").SiameseNetwork()
    first, second = torch.randn(2, batch, 1, 28, 28)
    target = torch.randint(2, (batch,)).float()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)

    def loss() -> torch.Tensor:
        return functional.binary_cross_entropy(model(first, second).squeeze(1), target)

    return _training(model, loss, optimizer)


def own_loop(batch: int) -> Any:
    """A loop of one's own: a small network, four accumulated parts, and a moving average of the weights."""
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    for width in (32, 64, 128):
        layers += [nn.Conv2d(width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.SiLU(),
                   nn.MaxPool2d(2)]  # fmt: skip
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100000)
    parts = [(torch.randn(batch, 3, 32, 32), torch.randint(100, (batch,))) for _ in range(4)]

    def step() -> None:
        optimizer.zero_grad()
        for images, labels in parts:
            (functional.cross_entropy(model(images), labels) / len(parts)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        average.update_parameters(model)

    step.module = model  # type: ignore[attr-defined]
    return step


def sine_waves(batch: int) -> Any:
    """pytorch/examples, time_sequence_prediction: LSTM cells in a loop over 100 times, in double precision."""
    model = importlib.import_module("time_sequence_prediction.train").Sequence().double()
    waves = torch.sin(torch.arange(101, dtype=torch.float64) / 20 + torch.rand(batch, 1, dtype=torch.float64))
    inputs, targets = waves[:, :-1], waves[:, 1:]
    return _training(model, lambda: functional.mse_loss(model(inputs), targets), _adamw(model))


NAMES = ("nanogpt", "bert", "llama_decode", "wav2vec2", "vit", "mobilenet", "diffusion", "graph", "recommender",
         "language", "siamese", "own_loop", "sine_waves")  # fmt: skip
if __name__ == "__main__":  # the steps run, and their times
    from time import perf_counter

    for name, batch in itertools.product(NAMES, (1, 32)):
        step = globals()[name](batch)
        for _ in range(3):
            begin = perf_counter()
            step()
        print(f"{name:12} batch {batch:2}: {1e3 * (perf_counter() - begin):8.1f} ms")
