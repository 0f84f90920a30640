"""Names of exported filters, against the headers and functions of the C library of this machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf import cli
from fwnkf.errors import ConfigError
from fwnkf.export.names import check_name
from fwnkf.native.compilers import compiler_available

INCLUDED = ("math", "stdint", "stdio", "stdlib")
"""Headers that the generated C and C++ includes."""
needs_compiler = pytest.mark.skipif(not compiler_available(), reason="needs a C compiler")


def preprocessed(text: str, *flags: str) -> str:
    done = subprocess.run(["cc", "-E", *flags, "-x", "c", "-"], input=text, capture_output=True, text=True, check=True)
    return done.stdout


def accepted(names) -> list[str]:
    """Those of some names that an export would take."""
    taken = []
    for name in names:
        try:
            check_name(name)
        except ConfigError:
            continue
        taken.append(name)
    return taken


@needs_compiler
def test_no_filter_replaces_a_header_of_the_c_library():
    found = re.findall(r'# \d+ "(\S+)/stdio\.h"', preprocessed("#include <stdio.h>\n"))
    names = {path.stem for path in Path(found[0]).glob("*.h") if _belongs_to_libc(path)}
    assert {"math", "stdio", "unistd"} <= names
    assert accepted(names) == []


def _belongs_to_libc(path: Path) -> bool:
    """By what it says of itself: headers of other libraries stand in the same folder."""
    return "This file is part of the GNU C Library" in path.read_text(encoding="utf-8", errors="replace")


@needs_compiler
def test_no_filter_has_the_name_of_a_function_that_its_code_could_call():
    text = "".join(f"#include <{name}.h>\n" for name in INCLUDED)
    declared = set(re.findall(r"\bextern\b[^;(]*?\b([a-z][a-z0-9_]*) *\(", preprocessed(text, "-std=c99")))
    assert {"sin", "sqrtf", "printf", "malloc"} <= declared
    assert accepted(declared) == []


@pytest.mark.parametrize("name", ["math", "unistd", "std", "class", "restrict", "m", "install", "rclcpp", "sinf"])
def test_a_reserved_name_is_refused_before_anything_is_written(name, tmp_path, capsys):
    eye = torch.eye(1)
    fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), tmp_path / "model")
    for to in ("c", "onnx"):
        words = ["export", str(tmp_path / "model"), "--to", to, "--name", name, "--out", str(tmp_path / "out")]
        assert cli.main(words) == 1
        assert f"use for example my_{name}" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "../up", "a" * 64, "a\n", "ä"])
def test_what_is_no_identifier_is_refused(name):
    with pytest.raises(ConfigError, match="C identifier"):
        check_name(name)


def test_names_of_shipped_models_and_of_the_guide_are_accepted():
    root = Path(__file__).parents[2]
    names = [folder.name.replace("-", "_") for folder in (root / "models").iterdir() if folder.is_dir()]
    assert accepted([*names, "height", "filter", "my_math"]) == [*names, "height", "filter", "my_math"]
