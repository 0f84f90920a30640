"""Load mutated checkpoints and report what each took: ``python -m tests.mutated_checkpoints COUNT SCRATCH SOURCE…``.

Run in a process of its own, whose peak memory nothing else raises. Prints one JSON object per checkpoint.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import shutil
import struct
import sys
import time
from pathlib import Path
from typing import Any

import fwnkf
from fwnkf.errors import FwnkfError

from . import systems as systems  # registers the systems of the tests

SIZES: tuple[Any, ...] = (10**5, 10**6, 10**9, 2**31, 2**63, 10**30, 10**400)
OTHERS: tuple[Any, ...] = (
    *(
        -1,
        0,
        1,
        2,
        0.5,
        -0.0,
        1e-320,
        1e308,
        "",
        "\ud800",
        "a\0b",
        "\x1b[2J",
        False,
        float("nan"),
        float("-inf"),
        "x" * 10_000,
        "../../etc/passwd",
        [],
        {},
        [[[]]],
        None,
        True,
    ),
    *([10**9] * 3, {"name": "os.system"}, [1e400], "__import__"),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """All values of nested mappings and lists with their paths, the containers included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value)] * bool(path) + [leaf for key, item in items for leaf in leaves(item, (*path, key))]


def put(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        config = config[key]
    config[path[-1]] = value


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut, repeated or moved."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not raw:
            break
        place, other, length = rng.randrange(len(raw)), rng.randrange(len(raw)), rng.choice((1, 1, 2, 4, 16, 64))
        action = rng.randrange(6)
        if action == 0:
            raw[place] ^= 1 << rng.randrange(8)
        elif action == 1:
            raw[place] = rng.choice(b"0129-+.eE\"'{}[]:,*&!|>#%@` \n\t\\\0\xff")
        elif action == 2:
            del raw[place : place + length]
        elif action == 3:
            raw[place:place] = raw[other : other + length]
        elif action == 4:
            raw[place:place] = rng.choice((b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"[[", b"9" * 5000, b"~"))
        else:
            raw[place : place + length] = rng.randbytes(length)
    return bytes(raw)


def mutated_tree(tree: Any, rng: random.Random) -> Any:
    """A copy of a plain value with some of its values replaced, removed, renamed, repeated or exchanged."""
    holder: dict[str, Any] = {"tree": copy.deepcopy(tree)}
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = leaves(holder)
        path, value = rng.choice(places)
        action = rng.randrange(6)
        if action == 0 and isinstance(value, (int, float)) and not isinstance(value, bool):
            put(holder, path, rng.choice((value + 1, -value, value * 1000, value // 3, value * 0, *SIZES)))
        elif action <= 1:
            put(holder, path, rng.choice((*OTHERS, *SIZES)))
        elif action == 2:
            put(holder, path, copy.deepcopy(rng.choice(places)[1]))
        elif action == 3:
            put(holder, path, [copy.deepcopy(value)] * rng.choice((0, 1, 2, 50)))
        elif action == 4 and isinstance(value, list) and value:
            value.reverse() if rng.random() < 0.3 else value.pop() if rng.random() < 0.5 else value.append(value[0])
        elif isinstance(value, dict) and value:
            name = rng.choice(list(value))
            item = value.pop(name)
            if rng.random() < 0.7:
                value[rng.choice((f"{name}_", "", "x" * 10_000, "name", "config", "__class__"))] = item
        if len(leaves(holder)) > 5000:
            break
    return holder["tree"]


def mutated_json(data: bytes, rng: random.Random) -> bytes:
    """JSON with another tree; with other bytes if it is too deep for that, or is none."""
    try:
        return json.dumps(mutated_tree(json.loads(data), rng)).encode()
    except (ValueError, RecursionError):
        return mutated_bytes(data, rng)


def mutate(folder: Path, rng: random.Random, other: Path) -> str:
    """Change the checkpoint in place; returns a description of the change."""
    config_file, tensor_file = folder / "config.json", folder / "model.safetensors"
    config, tensors = json.loads(config_file.read_text()), bytearray(tensor_file.read_bytes())
    header_size = struct.unpack("<Q", tensors[:8])[0]
    header = json.loads(tensors[8 : 8 + header_size])
    kind = rng.choice(
        (
            "size",
            "size",
            "size",
            "value",
            "value",
            "key",
            "text",
            "header",
            "tensors",
            "bytes",
            "swap",
            "letters",
            "tree",
        )
    )
    what = ""
    if kind == "size":
        sizes = [path for path, value in leaves(config) if isinstance(value, int) and not isinstance(value, bool)]
        path, value = rng.choice(sizes), rng.choice(SIZES)
        put(config, path, value)
        what = f"{path} = {value}"
    elif kind == "value":
        path, value = rng.choice(leaves(config))[0], rng.choice(OTHERS)
        put(config, path, value)
        what = f"{path} = {str(value)[:40]}"
    elif kind == "key":
        holders = [config, *(value for _, value in leaves(config) if isinstance(value, dict) and value)]
        holder = rng.choice(holders)
        name = rng.choice(list(holder))
        if rng.random() < 0.5:
            holder[f"{name}_"] = holder[name]
        else:
            holder[f"{name}_"] = holder.pop(name)
        what = f"{name} -> {name}_"
    if kind in ("size", "value", "key"):
        config_file.write_text(json.dumps(config))
        return f"{kind}: {what}"
    if kind in ("letters", "tree"):
        text = config_file.read_bytes()
        config_file.write_bytes(mutated_bytes(text, rng) if kind == "letters" else mutated_json(text, rng))
    elif kind == "text":
        text = config_file.read_bytes()
        choices = (text[: rng.randrange(len(text))], text + b"}", b"[" * 500_000, b"", text.replace(b":", b"="))
        config_file.write_bytes(rng.choice(choices))
    elif kind == "header":
        name = rng.choice([name for name in header if name != "__metadata__"])
        field = rng.choice(("shape", "dtype", "data_offsets"))
        header[name][field] = rng.choice(
            {
                "shape": ([10**12], [2**40, 2**40], [-1], "x", [*header[name]["shape"], 2]),
                "dtype": ("I8", "F128", 7, "BOOL"),
                "data_offsets": ([0, 10**15], [5, 1], [], [header_size, header_size]),
            }[field]
        )
        what = f"{name}.{field} = {header[name][field]}"
        text = json.dumps(header).encode()
        tensor_file.write_bytes(struct.pack("<Q", len(text)) + text + tensors[8 + header_size :])
    elif kind == "tensors":
        from safetensors.torch import load_file, save_file

        loaded = load_file(tensor_file)
        name = rng.choice(list(loaded))
        action = rng.choice(("missing", "added", "flattened", "converted", "doubled"))
        if action == "missing":
            del loaded[name]
        elif action == "added":
            loaded[f"{name}.more"] = loaded[name].clone()
        elif action == "flattened":
            loaded[name] = loaded[name].reshape(1, -1, 1)
        elif action == "converted":
            loaded[name] = loaded[name].half()
        else:
            loaded[name] = loaded[name].expand(2, *loaded[name].shape).contiguous()
        what = f"{name} {action}"
        save_file(loaded, tensor_file)
    elif kind == "bytes":
        cut = rng.randrange(len(tensors))
        choices = (tensors[:cut], tensors + b"\0", struct.pack("<Q", rng.choice((2**63, 10**8, 1))) + tensors[8:], b"")
        tensor_file.write_bytes(rng.choice(choices))
    else:
        shutil.copy(other / "model.safetensors", tensor_file)
        what = other.name
    return f"{kind}: {what}"


def main(count: int, scratch: Path, sources: list[Path]) -> None:
    rng = random.Random(0)
    for source in sources:  # so that imports and first calls are not counted
        fwnkf.load(source)
    for number in range(count):
        source, other = rng.sample(sources, 2)
        folder = scratch / "checkpoint"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        change = mutate(folder, rng, other)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.process_time()
        try:
            fwnkf.load(folder)
            outcome = "loaded"
        except FwnkfError as error:
            outcome = f"{type(error).__name__}: {error}"[:300]
        seconds = time.process_time() - begin
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        report = {"of": source.name, "change": change, "outcome": outcome, "seconds": seconds, "megabytes": growth}
        print(json.dumps({"number": number, **report}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
