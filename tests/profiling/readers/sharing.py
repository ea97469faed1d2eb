"""Profiles whose values are taken from other values: equal ids, one chain of pages twice, memo
entries used again, counts that lie. Damage is drawn from a number.

`fuzzing` writes odd values; here every value is one that the file has already, so that a file of
its size unfolds to more. Run alone it feeds each format as many inputs as asked for:

    python -m tests.profiling.readers.sharing --count 10000 [FORMAT …]
"""

import argparse
import json
import pickle
import pickletools
import struct
import tempfile
from pathlib import Path
from random import Random

from curvescope.profiling.readers.xspace_pb import _message_type

from ...security.apart import run_apart
from .fuzzing import SCRATCH, feed_bytes, seeds
from .test_graph_capture import captured, replayed
from .test_memory_snapshot import snapshot

IDS = ("correlation", "External id", "graph id", "graph node id", "Python id", "Python parent id")
IDS += ("stream", "device", "pid", "tid", "id", "ts", "dur", "name", "cat", "ph")


def trace_seeds():
    """Traces of PyTorch, one of them with graphs that it captures and replays."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        both = [
            json.loads(write(Path(folder) / "t.json").read_bytes())["traceEvents"]
            for write in (
                lambda path: captured(path, [("x", "ab"), ("y", "ab")]),
                lambda path: replayed(path, ["ab", "ab"]),
            )
        ]
    graphs = json.dumps({"schemaVersion": 1, "traceEvents": [*both[0], *both[1]]}).encode()
    return [*seeds("pytorch_json"), graphs]


def share_events(random):
    """A trace in which events take ids, times and names from other events, some of them many
    times.
    """
    document = json.loads(random.choice(trace_seeds()))
    events = document["traceEvents"]
    for _ in range(random.choice((1, 3, 10))):
        name = random.choice(IDS)
        places = [
            place
            for event in events
            for place in (event, event.get("args"))
            if isinstance(place, dict) and name in place
        ]
        if not places:
            continue
        value = random.choice(places)[name]
        for place in random.choices(places, k=random.choice((1, 5, len(places)))):
            place[name] = value
    if random.random() < 0.4:
        events += random.choices(events, k=random.choice((10, 300)))
    if random.random() < 0.2:
        document["traceEvents"] = events = random.sample(events, len(events))
    return json.dumps(document).encode()


def places_in(value, known=None):
    """Every container of a value and the keys in it, each container once."""
    known = {} if known is None else known
    if isinstance(value, (dict, list)) and id(value) not in known:
        known[id(value)] = value
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            places_in(value[key], known)
    return [
        (place, key)
        for place in known.values()
        for key in (list(place) if isinstance(place, dict) else range(len(place)))
    ]


def share_pickle(random):
    """A memory snapshot in which places hold what stands elsewhere, chains of lists or tuples that
    each hold the one before twice among it; or a pickle whose memo is used again.
    """
    made = snapshot()
    for _ in range(random.choice((1, 2, 6))):
        places = places_in(made)
        place, key = random.choice(places)
        kind = random.choice((object, type(place[key]), type(place[key])))
        value = random.choice([place[key] for place, key in places if isinstance(place[key], kind)])
        if random.random() < 0.2:
            kind = random.choice((list, tuple))
            for _ in range(random.choice((3, 40))):
                value = kind((value, value))
        place[key] = value
    data = pickle.dumps(made, random.choice((2, 4, 5)))
    return _use_memo_again(data, random) if random.random() < 0.5 else data


def _use_memo_again(data, random):
    """A pickle in which texts and numbers are taken from the memo, by a number that may lie."""
    opcodes = list(pickletools.genops(data))
    ends = [at for _, _, at in opcodes[1:]] + [len(data)]
    values = [
        (at, end)
        for (opcode, _, at), end in zip(opcodes, ends, strict=True)
        if opcode.name.startswith(("SHORT_BINUNICODE", "BINUNICODE", "BININT"))
    ]
    known = sum(opcode.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT") for opcode, _, _ in opcodes)
    for at, end in sorted(random.sample(values, min(3, len(values))), reverse=True):
        index = random.randrange(max(1, min(256, known + 1)))
        data = data[:at] + b"h" + bytes([index]) + data[end:]
    return data


def share_pages(random):
    """A database in which pages and cells stand for other ones."""
    data = bytearray(random.choice(seeds(random.choice(("nsys_sqlite", "nvprof_sqlite")))))
    size = struct.unpack(">H", data[16:18])[0]
    count = len(data) // size
    leaves = [page for page in range(1, count) if data[page * size] == 13]
    inner = [page for page in range(1, count) if data[page * size] == 5]
    for _ in range(random.choice((1, 2, 6))):
        kind = random.random()
        page = random.choice(inner if inner and kind < 0.4 else leaves) * size
        cells = struct.unpack_from(">H", data, page + 3)[0]
        head = 12 if data[page] == 5 else 8
        if kind < 0.2 and inner:  # the last child
            struct.pack_into(">I", data, page + 8, random.randrange(1, count + 1))
        elif kind < 0.4 and inner and cells:  # any child
            at = struct.unpack_from(">H", data, page + head + 2 * random.randrange(cells))[0]
            struct.pack_into(">I", data, page + at, random.randrange(1, count + 1))
        elif kind < 0.7 and cells > 1:  # two rows of one cell
            places = [page + head + 2 * random.randrange(cells) for _ in range(2)]
            data[places[0] : places[0] + 2] = data[places[1] : places[1] + 2]
        elif kind < 0.8:  # a count that lies
            struct.pack_into(">H", data, page + 3, random.choice((0, cells + 1, 2 * cells, 4000)))
        elif cells:  # a length that lies, so that a row goes on in another page
            at = struct.unpack_from(">H", data, page + head + 2 * random.randrange(cells))[0]
            data[page + at : page + at + 3] = bytes((0x83, 0xFF, random.randrange(128)))
        else:  # one page in place of another
            other = random.choice(leaves) * size
            data[page : page + size] = data[other : other + size]
    return bytes(data)


def space_with_module():
    """An XSpace with a module of XLA whose instructions call and use each other."""
    space = _message_type("XSpace").FromString(random_space())
    plane = space.planes.add(name="/host:metadata")
    plane.stat_metadata.add(key=9).value.name = b"Hlo Proto"
    module = _message_type("HloProto")()
    module.hlo_module.name = "jit_f"
    for number in range(4):
        computation = module.hlo_module.computations.add(id=number)
        for own in range(5):
            computation.instructions.add(
                name=f"i{own}",
                opcode=("add", "dot", "fusion", "custom-call", "copy")[own],
                fusion_kind="kCustom" if own == 2 else "",
                id=10 * number + own,
                operand_ids=[10 * number + (own + 1) % 5],
                called_computation_ids=[(number + 1) % 4],
            ).metadata.op_name = f"jit(f)/a{own}/b"
    entry = plane.event_metadata.add(key=1)
    entry.value.name = b"jit_f(1)"
    entry.value.stats.add(metadata_id=9, bytes_value=module.SerializeToString())
    return space


def random_space():
    return seeds("xspace_pb")[0]


def messages_in(message):
    """All messages within one, each with its parts that repeat."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if hasattr(value, "add") else [value]:
                yield from messages_in(inner)


def share_messages(random):
    """An XSpace whose messages are copies of others, and whose numbers are those of others."""
    space = space_with_module()
    for plane in space.planes:
        for entry in plane.event_metadata:
            for stat in entry.value.stats:
                if stat.HasField("bytes_value"):
                    proto = _message_type("HloProto").FromString(stat.bytes_value)
                    _share(list(messages_in(proto)), random)
                    stat.bytes_value = proto.SerializeToString()
    _share(list(messages_in(space)), random)
    return space.SerializeToString()


def _share(messages, random):
    for _ in range(random.choice((1, 3, 10))):
        message = random.choice(messages)
        alike = [other for other in messages if other.DESCRIPTOR is message.DESCRIPTOR]
        other = random.choice(alike)
        fields = other.ListFields()
        if not fields:
            continue
        field, value = random.choice(fields)
        if not hasattr(value, "append") and not hasattr(value, "add"):
            for each in random.choices(alike, k=random.choice((1, 5, len(alike)))):
                if field.message_type is None:
                    setattr(each, field.name, value)
        elif hasattr(value, "add"):
            copies = [random.choice(value) for _ in range(random.choice((1, 30, 1000)))]
            getattr(message, field.name).extend(copies)
        else:
            getattr(message, field.name).extend(random.choices(value, k=random.choice((5, 5000))))


FORMATS = {
    "pytorch_json": share_events,
    "memory_snapshot": share_pickle,
    "sqlite": share_pages,
    "xspace_pb": share_messages,
}


def feed_apart(name, numbers):
    """Import the inputs of some numbers in one process held to limits; returns what went wrong, and
    how many were read.
    """

    def work():
        read = 0
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            for number in numbers:
                try:
                    random = Random(f"{name} {number}")
                    read += feed_bytes(FORMATS[name](random), Path(folder) / "profile")
                except BaseException as error:
                    raise AssertionError(f"{name}: input {number} escaped") from error
        return str(read)

    return run_apart(work)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("format", nargs="*", default=list(FORMATS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    for name in args.format:
        read, slowest, wrong = 0, (0.0, 0), []
        for first in range(args.first, args.first + args.count, 10):
            spent = feed_apart(name, range(first, first + 10))
            slowest = max(slowest, (spent.cpu_s, first))
            read += int(spent.answer or 0)
            if spent.wrong:
                wrong.append(first)
                print(f"{name}: inputs from {first}: {spent.wrong}", flush=True)
        print(
            f"{name}: {args.count} inputs, {read} read, {len(wrong)} tens went wrong; slowest ten "
            f"{slowest[0]:.1f} s of CPU time (from {slowest[1]})",
            flush=True,
        )


if __name__ == "__main__":
    main()
