"""What of command lines, paths and messages is recorded: what is known to be harmless, and nothing
else.

A recording is shared, and whoever reads it reads all of it. So of a command line the program, its
script, names of options and numbers are kept, and `***` stands for every other value; of a message
its words and numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HIDDEN = "***"
_SECRET = re.compile(
    r"pass(?!ed|es|ing|ive|age)|pwd|secret|(?<![a-z])(\w+[-_])?token(?![a-z])|authtoken|hftoken|credential|auth(?!or)"
    r"|(api|access|private|signing|account|wandb|ssh)[-_]?key|(?<![a-z])key(?![a-z])|cookie|bearer|(?<![a-z])sig"
    r"(?![a-z])|signature|session[-_]?id|(?<![a-z])pin(?![a-z])",
    re.IGNORECASE,
)
# Names that have a word of `_SECRET` and are none: arguments of loaders, tokenizers and attention.
_NO_SECRET = re.compile(
    r"(--)?(.*\.)?(pin[-_]?memory([-_]device)?|(pad|eos|bos|unk|mask|sep|cls)[-_]token([-_]id)?"
    r"|key[-_](padding[-_]mask|value|states|cache|dim|lengths?)|sort[-_]key)",
    re.IGNORECASE,
)
# Words of a message behind which a secret stands without a sign between them.
_BEFORE_SECRET = re.compile(
    r"password|passwd|passphrase|pwd|secret|bearer|basic|token", re.IGNORECASE
)
_FOLDERS = ("PWD", "OLDPWD")  # variables of the shell that hold folders, not passwords
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_LEAST_LENGTH = 6  # characters: shorter environment values occur in words by chance
# maybe with a unit, e.g. 8GB
_NUMBER = re.compile(r"[-+]?\d{1,12}(\.\d{0,12})?([eE][-+]?\d{1,3})?(%|[a-zA-Z]{1,3})?")
_NUMBERS = re.compile(r"[,:x]|\.\.")  # between numbers, e.g. 3,224,224 or 1..32
_LONG_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9]{0,15}([-_.][A-Za-z0-9]{1,15}){0,5}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
_SCRIPT = re.compile(r"[\w./~+-]{1,300}\.(py|sh|bash|ipynb|jl|lua|exe)")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,30}(\.[A-Za-z_][A-Za-z_0-9]{0,30}){0,8}")
# Words that start programs, and words of Curvescope's own commands: none can be anybody's secret.
_WORDS = frozenset(
    (  # noqa: SIM905 - read at a glance
        "env sh bash python python3 torchrun mpirun mpiexec srun sbatch accelerate deepspeed "
        "launch run exec nice time timeout taskset numactl nsys ncu nvprof profile uv poetry conda "
        "curvescope sudo -- - diagnose energy memory sweep scale bench record step model import "
        "export gemm conv attention operators latency transfer peak replay all ceilings compile "
        "alexnet overfeat vgg_a vgg16 vgg19 googlenet inception_bn inception_v3 resnet50 resnet101 "
        "resnet152 bert_base bert_base_encoder training forward forward+backward fp32 tf32 fp16 "
        "bf16 default quick addfor dell dlperf cpu cuda yes no both true false none max local"
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
        "eval test val spawn fork forkserver full none null"
    ).split()
)
_DEVICE = re.compile(r"(cuda|gpu|mps|xpu|npu|hpu|tpu|cpu):\d{1,4}")
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
# Sites whose pages are public: errors name them. Of all other addresses not even the host is kept.
_SITES = re.compile(
    r"(\w+\.)?(pytorch\.org|docs\.nvidia\.com|developer\.nvidia\.com|jax\.dev|tensorflow\.org|openxla\.org"
    r"|readthedocs\.io|python\.org|numpy\.org|onnxruntime\.ai)"
)
_PATH = re.compile(r"(/[A-Za-z]{1,24}(?:[-_.][A-Za-z0-9]{1,16}){0,6}){0,8}/?\.?")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_TEXT_WORD = re.compile(r"[^\s\"'`(){}\[\]<>,;|*?!]+")
# A word of a message: letters, or a name of parts that are letters and a short number, e.g.
# aten::conv2d or float32.
_PART = re.compile(r"[A-Za-z]{0,24}\d{0,4}[A-Za-z]{0,2}|\d{1,12}|\d{1,9}(x\d{1,9})+")
_BETWEEN_PARTS = re.compile(r"[^A-Za-z0-9]+")
# Beginnings of well-known tokens, which may be of letters alone.
_TOKEN = re.compile(
    r"gh[opsu]_|github_pat_|hf_|sk-|xox[abeprs]-|AKIA|ASIA|AIza|glpat-|npm_|pypi-|eyJ|ya29\."
)
_NO_VALUES = (
    "True",
    "False",
    "None",
)  # of an argument in code: whether there is a secret, and not which
_LEAST_HIDDEN = 5  # characters of a part of a message: shorter ones are e.g. 4D or 2x2


def without_secrets(
    command: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """A command line as it is recorded: the program, its script, names of options, and numbers;
    `***` for the rest.
    """
    return [_without_values(shown, environment) for shown in _shown(command)]


def with_secrets_masked(
    command: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """A command line whose values are kept, but those that are named like a secret, and users in
    URLs.
    """
    shown, follows = [], False
    for argument in command:
        name, equals, _ = argument.partition("=")
        secret = _is_secret(name)
        if follows:
            argument = HIDDEN
        elif secret and equals:
            argument = f"{name}={HIDDEN}"
        follows = not follows and secret and not equals and argument.startswith("-")
        shown.append(_without_values(_USER_IN_URL.sub(HIDDEN, argument), environment))
    return shown


def masked_text(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """A message or a line of a program as it is recorded: words and numbers; `***` for all that has
    another form.

    Hidden are addresses behind `://` but those of public documentation and of this machine, what
    follows a name like that of a secret, and what is neither a word nor a number, e.g. letters and
    digits in turn. A secret that is a plain word is not recognised.
    """
    pieces, end, follows = [], 0, False
    for match in _TEXT_WORD.finditer(text):
        between = text[end : match.start()]
        shown, follows = _shown_word(match[0], follows and "\n" not in between)
        pieces += [between, shown]
        end = match.end()
    return without_homes(_without_values("".join([*pieces, text[end:]]), environment))


def home_as_tilde(text: str) -> str:
    """A text in which `~` stands for the folder of this user: a path stays usable."""
    home = str(Path.home())
    return text if len(home) < 2 else re.sub(rf"{re.escape(home)}(?=[/\\:\s'\"]|$)", "~", text)


def without_homes(text: str) -> str:
    """A text without the names of users in paths: `~` for this user's folder, `/home/***` for
    others.
    """
    return re.sub(r"(/home|/Users)/(?!\*)[^/\s:'\"]+", rf"\1/{HIDDEN}", home_as_tilde(text))


def _shown(command: Sequence[str]) -> Iterator[str]:
    before = ""
    for position, argument in enumerate(command):
        name, equals, value = argument.partition("=")
        if position == 0:
            yield without_homes(argument)
        elif _secret_before(before):
            yield HIDDEN
        elif (
            argument in _WORDS
            or _LONG_OPTION.fullmatch(argument)
            or (_LONG_OPTION.fullmatch(before) and is_choice(argument))
        ):
            yield argument
        elif equals and (_LONG_OPTION.fullmatch(name) or _VARIABLE.fullmatch(name)):
            yield f"{name}={_shown_value(name, value)}"
        elif _SCRIPT.fullmatch(argument) or _is_module(command, position):
            yield without_homes(argument)
        elif _is_number(argument) or re.fullmatch(r"-[A-Za-z]", argument):
            yield argument
        elif re.match(r"-[A-Za-z]", argument):
            yield argument if _is_number(argument[2:]) else argument[:2] + HIDDEN
        else:
            yield HIDDEN
        before = argument


def _is_module(command: Sequence[str], position: int) -> bool:
    """Whether an argument is the module of `python -m`, or of a launcher of Python's."""
    before = [argument.rpartition("/")[2] for argument in command[: position - 1]]
    starts_python = any(name.startswith("python") or name in _LAUNCHERS for name in before)
    is_first = not any(_SCRIPT.fullmatch(name) for name in before)
    return (
        command[position - 1] == "-m"
        and starts_python
        and is_first
        and bool(_MODULE.fullmatch(command[position]))
    )


def _secret_before(option: str) -> bool:
    return option.startswith("-") and "=" not in option and _is_secret(option)


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None and not _NO_SECRET.fullmatch(name)


def is_choice(value: str) -> bool:
    """Whether a value is one among few that programs know, or a place on this machine alone."""
    return (
        value in _CHOICES
        or value.lower() in _WORDS
        or value == "env://"
        or _DEVICE.fullmatch(value) is not None
        or _LOOPBACK.fullmatch(value.removeprefix("tcp://").removeprefix("http://")) is not None
    )


def _shown_value(name: str, value: str) -> str:
    harmless = _is_number(value) or is_choice(value) or _SCRIPT.fullmatch(value)
    return without_homes(value) if harmless and not _is_secret(name) else HIDDEN


def _is_number(text: str) -> bool:
    return all(_NUMBER.fullmatch(part) for part in _NUMBERS.split(text))


def _shown_word(word: str, follows_secret: bool) -> tuple[str, bool]:
    """A word of a text as it is recorded, and whether the next one may be a secret."""
    scheme, between, address = word.partition("://")
    if between:
        return f"{scheme}://{_shown_address(address)}", False
    if follows_secret:
        is_between = word in ("=", ":", "is", "was")
        return (word, True) if is_between else (HIDDEN, False)
    name, sign, value = re.match(r"([^=:]*)(:(?!:)|=|)(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
    if not sign:
        return word if _is_word(word) else HIDDEN, _BEFORE_SECRET.fullmatch(word) is not None
    secret = _is_secret(name)
    if value in _NO_VALUES:
        shown, follows = value, False
    else:
        shown, follows = (HIDDEN, False) if secret and value else _shown_word(value, secret)
    return (
        f"{name if _is_word(name) else HIDDEN}{sign}{shown if value else ''}",
        secret if not value else follows,
    )


def _shown_address(address: str) -> str:
    """What of an address behind `://` is kept: this machine's own, and the path of a page that is
    public.
    """
    host, slash, path = address.partition("/")
    if _LOOPBACK.fullmatch(host):
        return host + (f"/{HIDDEN}" if path else slash)
    if not _SITES.fullmatch(host.rstrip(".:")):
        return HIDDEN if address else ""
    is_page = _PATH.fullmatch(slash + path) and not any(map(_TOKEN.match, path.split("/")))
    return address if is_page else f"{host}/{HIDDEN}"


def _is_word(text: str) -> bool:
    parts = _BETWEEN_PARTS.split(text)
    return not _TOKEN.match(text) and all(
        len(p) < _LEAST_HIDDEN or _PART.fullmatch(p) for p in parts
    )


def _without_values(text: str, environment: Mapping[str, str]) -> str:
    """A text without the values of variables that are named like a secret."""
    named = [name for name in environment if _is_secret(name) and name not in _FOLDERS]
    values = [environment[name] for name in named if len(environment[name]) >= _LEAST_LENGTH]
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text
