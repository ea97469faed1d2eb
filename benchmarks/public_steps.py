"""Steps of public models and training scripts, as a user would wrap them:
`--step benchmarks.public_steps:NAME`.

From the Python Package Index: transformers, timm, diffusers, torch_geometric. From GitHub, their
folders on PYTHONPATH: karpathy/nanoGPT, facebookresearch/dlrm, and of pytorch/examples
word_language_model, mnist, siamese_network and time_sequence_prediction. Inputs are random; sizes
are those of the scripts or smaller, for a CPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.compiler import COMPILER, NOTHING, WHAT, beside
from benchmarks.evidence import markdown


def _training(
    model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, clip: float | None = None
) -> Any:
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
    """karpathy/nanoGPT: the sizes that its README gives for a CPU, its own optimizer
    and clipping.
    """
    script = importlib.import_module("model")
    model = script.GPT(
        script.GPTConfig(block_size=64, vocab_size=65, n_layer=4, n_head=4, n_embd=128, dropout=0.0)
    )
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
        return model.generate(
            prompt, max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0
        )

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

    model, images = (
        timm.create_model("mobilenetv3_small_100").eval(),
        torch.randn(batch, 3, 224, 224),
    )

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
        return functional.mse_loss(
            model(scheduler.add_noise(images, noise, times), times).sample, noise
        )

    return _training(model, loss, _adamw(model), clip=1.0)


def graph(batch: int) -> Any:
    """torch_geometric: a GIN over `batch` graphs of 200 nodes and 800 edges, as in its mutag_gin
    example.
    """
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GIN, MLP, global_add_pool

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn, self.mlp = (
                GIN(32, 64, 5, dropout=0.5),
                MLP([64, 64, 2], norm=None, dropout=0.5),
            )

        def forward(self, data: Any) -> torch.Tensor:
            return self.mlp(global_add_pool(self.gnn(data.x, data.edge_index), data.batch, batch))

    model, labels = Net(), torch.randint(2, (batch,))
    graphs = Batch.from_data_list(
        [Data(torch.randn(200, 32), torch.randint(200, (2, 800))) for _ in range(batch)]
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return _training(model, lambda: functional.cross_entropy(model(graphs), labels), optimizer)


def recommender(batch: int) -> Any:
    """facebookresearch/dlrm: eight tables of 20,000 rows, sixteen samples to a unit of the batch,
    SGD.
    """
    import numpy as np

    script = importlib.import_module("dlrm_s_pytorch")
    tables, samples = 8, 16 * batch
    model = script.DLRM_Net(64, np.full(tables, 20000), np.array([13, 512, 256, 64]),
                            np.array([64 + tables * (tables + 1) // 2, 512, 256, 1]), arch_interaction_op="dot",
                            sigmoid_bot=-1, sigmoid_top=2)  # fmt: skip
    dense, clicks = torch.rand(samples, 13), torch.randint(2, (samples, 1)).float()
    offsets, rows = torch.arange(samples).repeat(tables, 1), torch.randint(20000, (tables, samples))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _training(
        model, lambda: model.loss_fn(model(dense, offsets, list(rows)), clicks), optimizer
    )


def language(batch: int) -> Any:
    """pytorch/examples, word_language_model: its LSTM of two layers, 35 words, clipping and plain
    updates.
    """
    model = importlib.import_module("word_language_model.model").RNNModel(
        "LSTM", 10000, 200, 200, 2, 0.2
    )
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
    """A loop of one's own: a small network, four accumulated parts, and a moving average of the
    weights.
    """
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    for width in (32, 64, 128):
        layers += [nn.Conv2d(width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.SiLU(),
                   nn.MaxPool2d(2)]  # fmt: skip
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100))
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )
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
    """pytorch/examples, time_sequence_prediction: LSTM cells in a loop over 100 times, in double
    precision.
    """
    model = importlib.import_module("time_sequence_prediction.train").Sequence().double()
    waves = torch.sin(
        torch.arange(101, dtype=torch.float64) / 20 + torch.rand(batch, 1, dtype=torch.float64)
    )
    inputs, targets = waves[:, :-1], waves[:, 1:]
    return _training(model, lambda: functional.mse_loss(model(inputs), targets), _adamw(model))


ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "results" / "public_steps.jsonl"
# At the largest size, with nothing and with a compiler beside; the last run of each counts.
LARGEST = KEPT.with_name("public_steps_at_largest.jsonl")
_LEAST, _FALSE = 0.05, 0.02  # gains that count, of steps and of steps that nothing makes faster
BATCHES = {"siamese": "2..128", "bert": "1..16", "wav2vec2": "1..16", "vit": "1..8",
           "nanogpt": "1..128", "language": "1..64", "own_loop": "1..128"}  # fmt: skip
NAMES = ("nanogpt", "bert", "llama_decode", "wav2vec2", "vit", "mobilenet", "diffusion", "graph", "recommender",
         "language", "siamese", "own_loop", "sine_waves")  # fmt: skip


def run(
    step: str, batches: str, folder: Path, path: Path, what: str = NOTHING, **variables: str
) -> dict[str, Any]:
    """Run `curvescope diagnose` on a step as a user would, and keep what the pages need in a file.

    The recording stays in the folder, by the name of the function. `what` runs beside it;
    `variables` are of the environment.
    """
    name = step.rpartition(":")[2]
    words = [
        "-m",
        "curvescope",
        "diagnose",
        "--step",
        step,
        "--batch",
        batches,
        "--json",
        "-o",
        str(folder / name),
    ]
    began_s = time.monotonic()
    environment = {**os.environ, **variables}
    with beside(what):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    took = {"step": name, "beside": what, "wall_s": round(time.monotonic() - began_s, 1)}
    document = kept({**json.loads(done.stdout), **took})
    with path.open("a") as file:
        file.write(json.dumps(document) + "\n")
    return document


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """What the pages need of a document of `diagnose`."""
    names = ("step", "beside", "wall_s", "headline", "remedies", "disturbances")
    curve = [[point["batch"], point["time_ms"]["value"]] for point in document["curve"]]
    answers = [
        {**{name: answer[name] for name in ("cause", "verdict", "where")},
         "functional": {name: answer["functional"][name] for name in ("kind", "at", "to", "label")}}
        for answer in document["answers"]
    ]  # fmt: skip
    certain = [
        {"where": part["label"], "from_shapes": part["from_shapes"],
         "sizes": [part["functional"]["at"], part["functional"]["to"]]}
        for part in document["certain"]
    ]  # fmt: skip
    return {**{name: document[name] for name in names}, "certain": certain, "device": document["device"]["name"], "curve": curve,
            "answers": answers, "date": time.strftime("%Y-%m-%d")}  # fmt: skip


HEAD = ("step", "ms at batch", "cause confirmed", "saves", "seconds")


def row(run: dict[str, Any]) -> list[str]:
    """A row of the runs at any size: at most three gains, those that change results last."""
    least, most = run["curve"][0], run["curve"][-1]
    best = []
    for change in run["remedies"]["rows"]:
        gains = [
            (at["share"]["value"], at["batch"], at["share"])
            for at in change["saves"]
            if at["proven"]
        ]
        _, batch, share = max(gains, key=lambda gain: gain[0])
        best.append(
            ("changes results" in change["costs"], f"{change['do']}: {_percent(share)} at {batch}")
        )
    names = ("", " (changes results)")
    saves = "; ".join(
        text + names[changed] for changed, text in sorted(best, key=lambda one: one[0])[:3]
    )
    answers = [answer for answer in run["answers"] if answer["verdict"] == "confirmed"]
    causes = "; ".join(
        dict.fromkeys(f"{answer['functional']['label']}: {answer['cause']}" for answer in answers)
    )
    return [
        run["step"],
        f"{least[1]:.3g} at {least[0]}, {most[1]:.3g} at {most[0]}",
        causes or "none",
        saves or run["remedies"]["sentence"],
        f"{run['wall_s']:.0f}",
    ]


def _percent(share: dict[str, float]) -> str:
    return f"{100 * share['value']:.0f} % ({100 * share['low']:.0f} to {100 * share['high']:.0f})"


def answered(run: dict[str, Any]) -> bool:
    """Whether a step got an answer: a proven gain of 5 %, or the proof that nothing that was tried
    saves 2 %.
    """
    plan = run["remedies"]
    gains = [
        at["share"]["value"] for change in plan["rows"] for at in change["saves"] if at["proven"]
    ]
    nothing = not plan["rows"] and " saves 2 % at " in (plan["sentence"] or "")
    return nothing or max(gains, default=0.0) >= _LEAST


_BOUND = re.compile(r"none saves more than ([0-9.]+) %")
_SMALL = 3.0  # per cent of a step


def answered_at_largest(run: dict[str, Any]) -> bool:
    """Whether a saving is proven at the largest size, where one trains, or that nothing that was
    tried saves 3 %.
    """
    plan, largest = run["remedies"], run["curve"][-1][0]
    proven = [
        at["proven"] for change in plan["rows"] for at in change["saves"] if at["batch"] == largest
    ]
    said = plan["sentence"] or ""
    bound = _BOUND.search(said)
    nothing = " saves 2 % at " in said or (bound is not None and float(bound[1]) <= _SMALL)
    return any(proven) or (not plan["rows"] and nothing)


def names_what_helps_beside_work(run: dict[str, Any]) -> bool:
    """Whether an answer names a change that only avoids the waits beside other work."""
    return (run["remedies"]["sentence"] or "").startswith("While other work runs")


LARGEST_HEAD = ("step", "ms", "beside", "proven at the largest", "discarded", "seconds")


def largest_row(run: dict[str, Any]) -> list[str]:
    """A row of the runs at the largest size: what is proven to save there, and what was
    discarded.
    """
    largest, most_ms = run["curve"][-1]
    gains = [
        f"{change['do']}: {_percent(at['share'])}"
        for change in run["remedies"]["rows"]
        for at in change["saves"]
        if at["proven"] and at["batch"] == largest
    ]
    waits = run["disturbances"] or {"disturbed": 0, "visits": 0, "set_aside": True}
    what = "set aside" if waits["set_aside"] else "disturbed, used"
    discarded = f"{waits['disturbed']} of {waits['visits']} {what}" if waits["disturbed"] else "0"
    return [
        run["step"],
        f"{most_ms:.3g} at {largest}",
        run["beside"],
        "; ".join(gains) or "none",
        discarded,
        f"{run['wall_s']:.0f}",
    ]


def runs_at_largest(what: str) -> list[dict[str, Any]]:
    """The last run of each step with that beside, in the order of their names."""
    lines = LARGEST.read_text().splitlines() if LARGEST.is_file() else []
    runs = {run["step"]: run for run in map(json.loads, lines) if run["beside"] == what}
    return [runs[name] for name in NAMES if name in runs]


def runs_of(path: Path) -> list[dict[str, Any]]:
    """The runs that are kept, the last one of each step."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return list({run["step"]: run for run in map(json.loads, lines)}.values())


def figures() -> list[str]:
    """What the kept runs say, as four sentences."""
    from benchmarks import published_live

    quiet, compiler = runs_at_largest(NOTHING), runs_at_largest(COMPILER)
    answered_quiet = sum(map(answered_at_largest, quiet))
    answered_beside = sum(map(answered_at_largest, compiler))
    named = sum(map(names_what_helps_beside_work, compiler))
    live, disturbed = runs_of(published_live.KEPT), runs_of(published_live.DISTURBED)
    still = published_live.still()
    sizes, causes = published_live.count_found(live)
    sizes_disturbed, _ = published_live.count_found(disturbed)
    false = sum(any(value >= _FALSE for _, value, *_ in run["saves"]) for run in still)
    steps = runs_of(KEPT)
    return [
        f"**{answered_quiet} of {len(quiet)}** public steps have a proven saving at their largest size, where one trains; "
        f"**{answered_beside} of {len(compiler)}** beside a compiler, where {named} name a change that helps while other "
        "work runs.",
        f"**{sum(map(answered, steps))} of {len(steps)}** steps end with a gain of 5 % or more at "
        "some size, or with the proof that nothing tried saves 2 %.",
        f"**{sizes} of {len(live)}** published anomalies are found at "
        f"their size, {causes} with their cause confirmed. "
        f"Where up to two thirds of the visits were disturbed, "
        f"{sizes_disturbed} of {len(disturbed)} were found at their size.",
        f"**{false} of {len(still)}** sweeps of steps that nothing should make faster end with a "
        "false gain of 2 % or more.",
    ]


def main() -> None:
    """Diagnose the steps that are asked for, each in a folder of its own; without a folder print the
    tables of the kept runs.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--folder", type=Path, help="folder for the recordings")
    parser.add_argument("--beside", choices=WHAT, default=NOTHING)
    parser.add_argument("--file", type=Path, default=KEPT, help="where the runs are kept")
    args = parser.parse_args()
    if args.folder is None:
        runs = [run for what in WHAT for run in runs_at_largest(what)]
        print(*markdown(LARGEST_HEAD, map(largest_row, runs)), "", sep="\n")
        print(*markdown(HEAD, map(row, runs_of(KEPT))), sep="\n")
        return
    for name in args.steps or NAMES:
        step = f"benchmarks.public_steps:{name}"
        batches = BATCHES.get(name, "1..32")
        print(row(run(step, batches, args.folder, args.file, args.beside)), flush=True)


if __name__ == "__main__":
    main()
