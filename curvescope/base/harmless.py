"""What of a word is known to be harmless: numbers, choices among few, words, names of files.

Everything else may be a secret, or say who and where somebody is.
"""

from __future__ import annotations

import re
from pathlib import Path

HIDDEN = "***"
_SECRET = re.compile(
    r"pass(?!ed|es|ing|ive|age)|pwd|kennwort|secret|(?<![a-z])(\w+[-_])?token(?![a-z])|authtoken|hftoken"
    r"|credential|auth(?!or)|(api|access|private|signing|account|wandb|ssh)[-_]?key|(?<![a-z])key(?![a-z])"
    r"|cookie|bearer|(?<![a-z])sig(?![a-z])|signature|session[-_]?id|(?<![a-z])(pin|t?otp|mfa)(?![a-z])",
    re.IGNORECASE,
)
# Names that have a word of `_SECRET` and are none: arguments of loaders, tokenizers and attention.
_NO_SECRET = re.compile(
    r"(--)?(.*\.)?_?(pin[-_]?memory([-_](device|thread\w*))?|(pad|eos|bos|unk|mask|sep|cls)[-_]token([-_]id)?"
    r"|(\w+[-_])?key[-_](padding[-_]mask|to[-_]\w+|value|states|cache|dim|lengths?)|sort[-_]key)",
    re.IGNORECASE,
)
# Maybe with a unit, e.g. 8GB; or the place of an axis in a command, e.g. {batch}.
_NUMBER = re.compile(
    r"[-+]?(\d{1,12})(\.\d{0,12})?([eE][-+]?\d{1,3})?(%|[a-zA-Z]{1,3})?|\{[a-z_]{1,16}\}"
)
_NUMBERS = re.compile(r"[,:x]|\.\.")  # between numbers, e.g. 3,224,224 or 1..32
_LONG_NUMBER = 10**9  # numbers from here on are sizes, and so round, or else numbers of somebody
# Words that start programs, and words of Curvescope's own commands: none can be anybody's secret.
_WORDS = frozenset(
    (  # noqa: SIM905 - read at a glance
        "env sh bash python python3 torchrun mpirun mpiexec srun sbatch accelerate deepspeed "
        "launch run exec nice time timeout taskset numactl nsys ncu nvprof profile uv poetry "
        "conda curvescope sudo -- - diagnose energy memory sweep scale bench record step model "
        "import export gemm conv attention operators latency transfer peak replay all ceilings "
        "compile alexnet overfeat vgg_a vgg16 vgg19 googlenet inception_bn inception_v3 resnet50 "
        "resnet101 resnet152 bert_base bert_base_encoder training forward forward+backward fp32 "
        "tf32 fp16 bf16 default quick addfor dell dlperf cpu cuda yes no both true false none max "
        "local"
    ).split()
)
# Values of a long option, or of a named one, that have a meaning for every program: a choice among
# few.
_CHOICES = frozenset(
    (  # noqa: SIM905 - read at a glance
        "gpu mps xpu npu hpu tpu rocm hip auto on off dynamic static float64 float32 float16 "
        "bfloat16 half single double int8 int4 uint8 fp8 fp4 nf4 mxfp4 mxfp8 nvfp4 fp8_e4m3 "
        "fp8_e5m2 float8_e4m3fn float8_e5m2 16-mixed bf16-mixed 32-true 16-true bf16-true high "
        "highest medium nccl gloo mpi ucc rccl c10d inductor eager aot_eager cudagraphs openxla "
        "tensorrt triton flashinfer sdpa flash_attention_2 FLASH_ATTN FLASHINFER math efficient "
        "flash reduce-overhead max-autotune max-autotune-no-cudagraphs sgd adam adamw adafactor "
        "lamb lars lion rmsprop adagrad cosine linear constant polynomial step plateau "
        "channels_last contiguous_format nchw nhwc O0 O1 O2 O3 awq gptq bitsandbytes gguf train "
        "eval test val spawn fork forkserver full none null SUPPORTED_CLOCKS"
    ).split()
)
_DEVICE = re.compile(r"(cuda|gpu|mps|xpu|npu|hpu|tpu|cpu):\d{1,4}")
LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|0\.0\.0\.0|\[?::1\]?)(:\d{1,5})?")
# Beginnings of well-known tokens, which may be of letters alone.
TOKEN = re.compile(
    r"gh[opsu]_|github_pat_|hf_|[srp]k[-_]|xox[abeprs]-|AKIA|ASIA|AIza|glpat-|npm_|pypi-|eyJ|ya29\."
)
# A word: letters, or a name of parts that are letters and a short number, e.g. aten::conv2d.
_PART = re.compile(r"[A-Za-z]{0,24}\d{0,4}[A-Za-z]{0,2}|\d{1,12}|\d{1,9}(x\d{1,9})+")
_BETWEEN_PARTS = re.compile(r"[^A-Za-z0-9]+")
_LEAST_HIDDEN = 5  # characters of a part of a word: shorter ones are e.g. 4D or 2x2
_HEX = re.compile(r"[a-fA-F]{8,}")
_LETTERS_IN_TURN = 10  # letters that are a word in whatever case they are: fewer are e.g. CuDNN
# Letters before a short number: of layers, types, devices and networks. `hunter2` has none of them.
_NUMBERED = re.compile(r"([A-Za-z]*?)([A-Z]?[a-z]+|[A-Z]+)\d{1,4}[A-Za-z]{0,2}")
_STEMS = frozenset(
    (  # noqa: SIM905 - read at a glance
        "activation adapter argument bilinear nearest correction epsilon generator lambda "
        "scheduler unpool alexnet align arange arch attention attn axis backbone backward base "
        "batch beta bert bias bfloat bit blas block bool bottleneck branch bucket buffer cast "
        "cell channel chunk class column complex compute conv convnext core count cublas cuda "
        "cudart cudnn cupti deconv decoder deepseek dense densenet depth device dgemm dim "
        "dimension double down downsample downs dropout efficientnet embed embedding encoder "
        "epoch error event exp expert factor falcon feat feature features file filter flash float "
        "forward fused fusion gate gemm gemma geforce gelu gemv gpu grad graph group grouped gru "
        "head hgemm hidden host image img in inception index init inner input int item iter "
        "iteration kernel key label layer layernorm length level lin line linear llama log logits "
        "loop loss lstm matmul matrix memory mean mistral mixtral mobilenet model module net "
        "network nccl node norm npz num offset op optim optimizer out outer output pad param part "
        "partition patch phase phi pool position process proj projection pt py python query "
        "quadro quant qwen radeon rank ratio recipe reduce region relu replica request res "
        "residual resnet resnext rmsnorm rocm rope round router row run sample scale scores sdpa "
        "segment seq sequence sgemm shape shard silu size slice slot softmax source split "
        "squeezenet stack stage state std step stream stride sum swin table target task temp "
        "tensor tesla test text tf thread tile time titan token top torch train trans transformer "
        "transpose triton tuple turing type uint unet unit up upsample utf val value var vec "
        "vector version vgg view vit volta warp weight weights width window wmma word worker "
        "workers xception xlm yolo zero"
    ).split()
)
_NAME_PART = re.compile(r"\d{0,2}[A-Za-z]{1,16}\d{0,4}|[A-Za-z]\d[A-Za-z]{0,8}")
_LONG_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9]{0,15}([-_.][A-Za-z0-9]{1,16}){0,5}")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,30}(\.[A-Za-z_][A-Za-z_0-9]{0,30}){0,8}")
SCRIPT = re.compile(r"[\w./~+-]{1,300}\.(py|sh|bash|ipynb|jl|lua|exe)")
# Parts of a file's name: longer numbers are dates.
_FILE_PART = re.compile(r"[A-Za-z]{0,24}\d{0,8}[A-Za-z]{0,2}")
_FILE = re.compile(
    r".+\.(py|pyc|ipynb|sh|bash|jl|lua|exe|c|cc|cpp|cu|cuh|h|hpp|so[.\d]*|json|ya?ml|toml|cfg|ini|txt|log|csv"
    r"|parquet|pt|pth|bin|safetensors|gguf|onnx|npy|npz|sqlite|gz|md)"
)
# Folders that every machine has, or many: they say nothing of anybody.
_FOLDERS = frozenset(
    (  # noqa: SIM905 - read at a glance
        "home Users *** bin lib lib64 local opt srv data mnt media tmp var scratch work workspace "
        "app code src venv .venv env envs conda miniconda3 anaconda3 scripts examples tests runs "
        "logs models checkpoints datasets cache .cache .local share ~ . .. Library Programs"
    ).split()
)
_SYSTEM = re.compile(r"/(usr|bin|sbin|lib|lib64|proc|sys|dev|etc|nix)/")
_PACKAGES = re.compile(r".*/((site|dist)-packages|python3?\.\d+)/")
_VERSIONED = re.compile(r"(python|cuda|lib)[-\d.]*")


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    return _SECRET.search(name) is not None and not _NO_SECRET.fullmatch(name)


def is_number(text: str) -> bool:
    """Whether a text is a number, or several; a long one must be round, as sizes are."""
    return all(map(_is_one_number, _NUMBERS.split(text)))


def _is_one_number(text: str) -> bool:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return False
    whole = int(match[1] or 0)
    return whole < _LONG_NUMBER or whole % 1000 == 0 or whole % 1024 == 0


def is_choice(value: str) -> bool:
    """Whether a value is one among few that programs know, or a place on this machine alone."""
    if value in _CHOICES or value.lower() in _WORDS or value == "env://":
        return True
    host = value.removeprefix("tcp://").removeprefix("http://")
    return _DEVICE.fullmatch(value) is not None or LOOPBACK.fullmatch(host) is not None


def is_known(argument: str) -> bool:
    """Whether an argument is a word that cannot be anybody's secret."""
    return argument in _WORDS


def is_option(argument: str) -> bool:
    """Whether an argument is the name of a long option, of words."""
    parts = re.split(r"[-_.]", argument[2:])
    return _LONG_OPTION.fullmatch(argument) is not None and all(map(_is_name_part, parts))


def is_module(argument: str) -> bool:
    """Whether an argument may be a module of Python, of words."""
    parts = filter(None, re.split(r"[._]", argument))
    return _MODULE.fullmatch(argument) is not None and all(map(_is_name_part, parts))


def _is_name_part(part: str) -> bool:
    return _NAME_PART.fullmatch(part) is not None and not _is_in_turn(part)


def is_word(text: str) -> bool:
    """Whether a text is a word, or a name of words and short numbers."""
    return not TOKEN.match(text) and all(map(_is_part, _BETWEEN_PARTS.split(text)))


def _is_part(part: str) -> bool:
    if len(part) < _LEAST_HIDDEN:
        return True
    if _PART.fullmatch(part) is None or _HEX.fullmatch(part) or _is_in_turn(part):
        return False
    numbered = _NUMBERED.fullmatch(part)
    return numbered is None or len(numbered[2]) < 4 or numbered[2].lower() in _STEMS


def _is_in_turn(part: str) -> bool:
    """Whether capital and small letters come in turn, as in no word."""
    changes = re.findall(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])", part)
    return len(part) >= _LETTERS_IN_TURN and 2 * len(changes) > len(part)


def mask_path(path: str) -> str:
    """A path without names of persons and places.

    Known folders, folders of packages and of a project, and the name of the file stay.
    """
    path = without_homes(path)
    *folders, name = path.split("/")
    is_absolute = path.startswith("/")
    if _SYSTEM.match(path):
        return "/".join(part if is_word(part) else HIDDEN for part in [*folders, name])
    shown, before = [], ""
    for folder in folders:
        before += f"{folder}/"
        inside = not is_absolute or _PACKAGES.match(before) is not None
        shown.append(folder if _is_folder(folder, inside) else HIDDEN)
    is_file = not is_absolute or not folders[1:] or _FILE.fullmatch(name) or folders[-1] == "bin"
    stays = name in _FOLDERS or not name or (is_file and _is_file_name(name))
    return "/".join([*shown, name if stays else HIDDEN])


def _is_folder(name: str, inside: bool) -> bool:
    if not name or name in _FOLDERS or name in ("site-packages", "dist-packages"):
        return True
    if _VERSIONED.fullmatch(name):
        return True
    return inside and "." not in name[1:] and _is_file_name(name)


def _is_file_name(name: str) -> bool:
    parts = _BETWEEN_PARTS.split(name)
    named = all(len(p) < _LEAST_HIDDEN or _FILE_PART.fullmatch(p) for p in parts)
    return named and not TOKEN.match(name) and not any(map(_is_in_turn, parts))


def home_as_tilde(text: str) -> str:
    """A text in which `~` stands for the folder of this user: a path stays usable."""
    home = str(Path.home())
    return text if len(home) < 2 else re.sub(rf"{re.escape(home)}(?=[/\\:\s'\"]|$)", "~", text)


def without_homes(text: str) -> str:
    """A text without the names of users in paths: `~` for this user's folder, `/home/***` for
    others.
    """
    return re.sub(r"(/home|/Users)/(?!\*)[^/\s:'\"]+", rf"\1/{HIDDEN}", home_as_tilde(text))
