"""Command lines and messages as they are recorded: only words that are known to be harmless.

A recording is shared, and whoever reads it reads all of it. So a command line keeps the program,
its script, names of options and numbers, and `***` stands for every other value. A message keeps
its words and numbers. `harmless` says which these are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from .harmless import (
    HIDDEN,
    LOOPBACK,
    SCRIPT,
    TOKEN,
    is_choice,
    is_known,
    is_module,
    is_number,
    is_option,
    is_secret,
    is_word,
    mask_path,
    without_homes,
)

_SHELL_FOLDERS = ("PWD", "OLDPWD")  # variables of the shell that hold folders, not passwords
_LEAST_LENGTH = 6  # characters: shorter environment values occur in words by chance
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
# Sites whose pages are public: errors name them. Of all other addresses not even the host is kept.
_SITES = re.compile(
    r"(\w+\.)?(pytorch\.org|docs\.nvidia\.com|developer\.nvidia\.com|jax\.dev|tensorflow\.org|openxla\.org"
    r"|readthedocs\.io|python\.org|numpy\.org|onnxruntime\.ai)"
)
_PATH = re.compile(r"(/[A-Za-z]{1,24}(?:[-_.][A-Za-z0-9]{1,16}){0,6}){0,8}/?\.?")
_TEXT_WORD = re.compile(r"[^\s\"'`(){}\[\]<>,;|*?!]+")
_QUOTES = "\"'`"
_BEFORE_OPTION = f"{_QUOTES} \t\n"
_ENDS_NAME = re.compile(r"[(,;|]")  # a name before it is called or listed, and has no value here
# Whether there is a secret, and not which: of an argument in code.
_NO_VALUES = ("True", "False", "None")
_ASSIGNING = ("=", ":", ":=")
_SIGNS = (*_ASSIGNING, "==", "is", "was")  # between a name and its value
# Names that have other meanings too, e.g. in attention: only a sign makes what follows a secret.
_AMBIGUOUS = re.compile(
    r"(.*[._])?(\w*pass(through)?|keys?|pins?|sig|signatures?|cookies?|auth\w*|bearer_?)",
    re.IGNORECASE,
)
_BEFORE_SECRET = ("basic", "bearer", "passwort")  # which stand before a secret without a sign
_BETWEEN = frozenset(
    (  # noqa: SIM905 - words of sentences around options and names of secrets
        "a an and are argument arguments as at be but by can cannot could did does expected "
        "expects failed for from given got had has have if in instead into invalid is it its may "
        "missing must needs no not of off on only option options or out provided required "
        "requires set should so than that the then these this to unknown use used using values "
        "was were when which will with without would you your"
    ).split()
)
_OPTION = re.compile(r"-{1,2}[A-Za-z]")
_IPV4 = re.compile(r"(?<![=v.\d-])\d{1,3}(\.\d{1,3}){3}(?![\d.]*\d)")
_IPV6 = re.compile(r"(?=[^:]*:[^:]*:)(?=.*\d)[0-9A-Fa-f:]{4,}(%\w+)?")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?")
_MAIL = re.compile(r"[\w.+%-]{1,64}@([\w-]{3,}|[\w-]+(\.[\w-]{2,})+)([:/].*)?")
# Hosts by their last label; labels of the second list are names in code too, e.g. self.net.
_HOST = re.compile(
    r"([A-Za-z0-9-]{1,63}\.)+((com|org|edu|gov|mil|corp|internal|lan|intranet|de|uk|fr|jp|kr|cn|ru|eu)\.?([:/].*)?"
    r"|(net|io|info|local|home|dev|app|cloud|ai|co|us|ch|nl)([:/].+))"
)
_PORT = re.compile(r"(?=[^:]*[-.\d])[A-Za-z][\w.-]*:\d{4,5}")
_LINE_OF_FILE = re.compile(r".*\.(py|cpp|cu|cc|c|h|hpp|cuh|js|rs|go):\d+")
_PLACE_IN_TEXT = re.compile(r"(.*?)((:\d+)*[.:]*)", re.DOTALL)
_WINDOWS_PATH = re.compile(r"([A-Za-z]:\\|\\\\\w).*", re.DOTALL)


def without_secrets(
    command: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """A command line as it is recorded: the program, its script, names of options, and numbers;
    `***` for the rest.
    """
    return [_without_values(shown, environment) for shown in _mask_command(command)]


def mask_text(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """A message or a line of a program as it is recorded: words and numbers, and `***` for the
    rest.

    Addresses, of mail too, are hidden, except this machine's and public documentation's. So are
    folders that not every machine has, values of options, and words after the name of a secret.
    Letters and digits in turn are neither a word nor a number. A secret that is a plain word is not
    recognised.
    """
    pieces, end, expected = [], 0, _Next.ANYTHING
    for match in _TEXT_WORD.finditer(text):
        if match.start() < end:  # in quotes that are hidden
            continue
        between = text[end : match.start()]
        quote = between[-1:] if between[-1:] in _QUOTES else ""
        if "\n" in between or (expected in _OF_NAMES and not quote and _ENDS_NAME.search(between)):
            expected = _Next.ANYTHING
        begins = not between or between[-1] in _BEFORE_OPTION
        end = match.end()
        if quote and expected in _HIDES_QUOTES and match[0] not in _SIGNS:
            shown, expected = HIDDEN, _Next.ANYTHING
            closing = re.compile(rf"{quote}|\n|$").search(text, end)
            end = closing.start() if closing else end
        else:
            shown, expected = _mask_word(match[0], expected, begins)
        pieces += [between, shown]
    return without_homes(_without_values("".join([*pieces, text[end:]]), environment))


class _Next(Enum):
    """What the next word of a text may be."""

    ANYTHING = "nothing is known"
    AMBIGUOUS = "a secret behind a sign: the last word is a name with several meanings"
    IN_QUOTES = "a secret, if it is in quotes or no name: behind a sign behind such a name"
    NAMED = "a secret, or a word of the sentence"
    BEHIND_SIGN = "a secret: behind a sign"
    VALUE = "the value of an option"


_OF_NAMES = (_Next.AMBIGUOUS, _Next.NAMED)
_HIDES_QUOTES = (_Next.IN_QUOTES, _Next.NAMED, _Next.BEHIND_SIGN)


def _mask_command(command: Sequence[str]) -> Iterator[str]:
    before = ""
    for position, argument in enumerate(command):
        name, equals, value = argument.partition("=")
        if position == 0:
            yield mask_path(argument)
        elif _secret_before(before):
            yield HIDDEN
        elif (
            is_known(argument)
            or is_option(argument)
            or (is_option(before) and is_choice(argument))
            or _is_module_argument(command, position)
            or is_number(argument)
            or re.fullmatch(r"-[A-Za-z]", argument)
        ):
            yield argument
        elif equals and (is_option(name) or (_VARIABLE.fullmatch(name) and is_word(name))):
            yield f"{name}={_mask_value(name, value)}"
        elif SCRIPT.fullmatch(argument):
            yield mask_path(argument)
        elif re.match(r"-[A-Za-z]", argument):
            yield argument if is_number(argument[2:]) else argument[:2] + HIDDEN
        else:
            yield HIDDEN
        before = argument


def _is_module_argument(command: Sequence[str], position: int) -> bool:
    """Whether an argument is the module of `python -m`, or of a launcher of Python's."""
    before = [argument.rpartition("/")[2] for argument in command[: position - 1]]
    starts_python = any(name.startswith("python") or name in _LAUNCHERS for name in before)
    is_first = not any(SCRIPT.fullmatch(name) for name in before)
    return (
        command[position - 1] == "-m"
        and starts_python
        and is_first
        and is_module(command[position])
    )


def _secret_before(option: str) -> bool:
    return option.startswith("-") and "=" not in option and is_secret(option)


def _mask_value(name: str, value: str) -> str:
    if is_secret(name):
        return HIDDEN
    if is_number(value) or is_choice(value):
        return value
    return mask_path(value) if SCRIPT.fullmatch(value) else HIDDEN


def _mask_word(word: str, expected: _Next, begins: bool = False) -> tuple[str, _Next]:
    """A word of a text as it is recorded, and the kind of the next; `begins` if it may be an
    option.
    """
    scheme, between, address = word.partition("://")
    if between:
        return f"{scheme}://{_mask_address(address)}", _Next.ANYTHING
    if expected in (_Next.NAMED, _Next.BEHIND_SIGN) and word in _SIGNS:
        return word, _Next.BEHIND_SIGN
    if expected in (_Next.AMBIGUOUS, _Next.IN_QUOTES) and word in _ASSIGNING:
        return word, _Next.IN_QUOTES
    if word in _NO_VALUES or not re.search(r"\w", word):
        return word, _Next.ANYTHING
    if _is_hidden_here(word, expected):
        return HIDDEN, _Next.ANYTHING
    if begins and _OPTION.match(word):
        return _mask_option(word)
    if expected == _Next.VALUE and is_choice(word):
        return word, _Next.ANYTHING
    if _is_place(word):
        return HIDDEN, _Next.ANYTHING
    if word.startswith(("/", "~/")) or _WINDOWS_PATH.fullmatch(word):
        return _mask_place(word), _Next.ANYTHING
    return _mask_name(word)


def _is_hidden_here(word: str, expected: _Next) -> bool:
    """Whether a word is hidden for what stands before it."""
    if expected == _Next.BEHIND_SIGN:
        return True
    if expected == _Next.NAMED:
        return word.rstrip(".:").lower() not in _BETWEEN
    if expected == _Next.IN_QUOTES:
        return re.fullmatch(r"[A-Za-z_.][\w.]*", word) is None or not is_word(word)
    if expected == _Next.VALUE:
        plain = word.rstrip(".:")
        is_shown = plain.lower() in _BETWEEN or is_number(plain) or is_choice(plain)
        return not (is_shown or _OPTION.match(word) or SCRIPT.fullmatch(plain))
    return False


def _mask_option(word: str) -> tuple[str, _Next]:
    """An option in a text: its value is hidden like that in a command line."""
    name, equals, value = word.partition("=")
    plain = name.rstrip(".:")
    if not plain.startswith("--"):
        if len(plain) == 2 and not equals:
            return word, _Next.VALUE
        is_shown = is_number(plain[2:]) or is_word(word[1:])
        return (word if is_shown else plain[:2] + HIDDEN), _Next.ANYTHING
    shown = name if is_option(plain) else HIDDEN
    if equals:
        follows = _Next.BEHIND_SIGN if value.endswith((":", "=")) else _Next.ANYTHING
        return f"{shown}={_mask_value(plain, value)}" if value else f"{shown}=", (
            follows if value else _Next.BEHIND_SIGN if is_secret(plain) else _Next.VALUE
        )
    return shown, _Next.BEHIND_SIGN if is_secret(plain) else _Next.VALUE


def _is_place(word: str) -> bool:
    """Whether a word is an address of a machine, or of somebody's mail."""
    plain = word.rstrip(".:")
    if LOOPBACK.fullmatch(plain) or _SITES.fullmatch(plain) or _TIME.fullmatch(plain):
        return False
    has_port = _PORT.fullmatch(plain) and not _LINE_OF_FILE.fullmatch(plain)
    return bool(
        has_port
        or _IPV4.search(plain)
        or _IPV6.fullmatch(plain)
        or _MAIL.fullmatch(plain)
        or _HOST.fullmatch(plain)
    )


def _mask_place(word: str) -> str:
    """A path in a text, maybe with a line of the file behind it."""
    path, rest = _PLACE_IN_TEXT.fullmatch(word).groups()[:2]  # type: ignore[union-attr]
    if "\\" not in path:
        return (mask_path(path) if path.strip("/") else path) + rest
    drive = re.match(r"([A-Za-z]:)?\\*", path)[0]  # type: ignore[index]
    inside = path[len(drive) :].replace("\\", "/")
    return drive + mask_path(f"/{inside}")[1:].replace("/", "\\") + rest


def _mask_name(word: str) -> tuple[str, _Next]:
    """A word, or a name and its value with a sign between them."""
    name, sign, value = re.match(r"([^=:]*)(:(?!:)|=|)(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
    if not sign:
        return (word if is_word(word) else HIDDEN), _after_name(word)
    secret = is_secret(name)
    shown_name = name if is_word(name) else HIDDEN
    if not value:
        return f"{shown_name}{sign}", _Next.BEHIND_SIGN if secret else _Next.ANYTHING
    if value in _NO_VALUES:
        return f"{shown_name}{sign}{value}", _Next.ANYTHING
    if secret:
        return f"{shown_name}{sign}{HIDDEN}", _Next.ANYTHING
    shown, follows = _mask_word(value, _Next.ANYTHING)
    return f"{shown_name}{sign}{shown}", follows


def _after_name(word: str) -> _Next:
    """What may follow a word without a sign; nothing behind the end of a sentence."""
    if word.lower() in _BEFORE_SECRET:
        return _Next.NAMED
    if not is_secret(word.rpartition(".")[2]):  # self.key.layer is none
        return _Next.ANYTHING
    return _Next.AMBIGUOUS if _AMBIGUOUS.fullmatch(word) else _Next.NAMED


def _mask_address(address: str) -> str:
    """What of an address behind `://` is kept: this machine's own, and the path of a page that is
    public.
    """
    host, slash, path = address.partition("/")
    if LOOPBACK.fullmatch(host):
        return host + (f"/{HIDDEN}" if path else slash)
    if not _SITES.fullmatch(host.rstrip(".:")):
        return HIDDEN if address else ""
    is_page = _PATH.fullmatch(slash + path) and not any(map(TOKEN.match, path.split("/")))
    return address if is_page else f"{host}/{HIDDEN}"


def _without_values(text: str, environment: Mapping[str, str]) -> str:
    """A text without the values of variables that are named like a secret."""
    named = [name for name in environment if is_secret(name) and name not in _SHELL_FOLDERS]
    values = [environment[name] for name in named if len(environment[name]) >= _LEAST_LENGTH]
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text
