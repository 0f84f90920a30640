"""What a step costs on a microcontroller: operations of the generated C, and an estimate of the cycles they take.

Operations are counted in the text: generated code has no branches that skip work, and its loops have constant bounds.
Cycles are those of the instructions of a Cortex-M4 with a floating-point unit, operands in memory, from flash without
wait states; the library functions are those of newlib. Compilers and memories differ: the estimate is good to a factor
of two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

CLOCK = 168e6
"""Hz, of a Cortex-M4 of a flight controller (STM32F405, F427)."""
SHARE = 0.5
"""Share of the processor above which a filter leaves too little for everything else that runs on it."""
STACK = 8 * 1024
"""Bytes of stack that a task of a flight controller has, at most."""
RAM, FLASH = 128 * 1024, 1024 * 1024
"""Bytes of a Cortex-M4 of a flight controller."""

CYCLES = {
    "float": {"add": 1, "multiply": 1, "divide": 14, "root": 14, "read": 2, "sine": 120, "power": 300, "compare": 2},
    # without a unit for them, the library computes in integers
    "double": {"add": 60, "multiply": 45, "divide": 450, "root": 600, "read": 4, "sine": 2500, "power": 6000,
               "compare": 25},
}  # fmt: skip
_FUNCTION = re.compile(r"^(?:static )?(?:int|void|real) (\w+)\(([^;{]*)\)(?:[^;{\n]*)\n\{\n(.*?)^\}", re.M | re.S)
_LOOP = re.compile(r"for \((?:int|int64_t) (\w+) = (.+?); \1 (<|<=|>|>=) (.+?); (?:\+\+|--)\1\) \{")
_INDEX = re.compile(r"\[[^\[\]]*\]")
_TOKEN = re.compile(
    r"(?P<sine>\b(?:SIN|COS|TAN|ATAN2?|ASIN|ACOS)\b)|(?P<power>\b(?:POW|EXP|LOG|EXPM1|LOG1P|TANH|SINH|COSH|ERF)\b)"
    r"|(?P<root>\bSQRT\b)|(?P<read>[\w\]>]\[)|(?P<multiply> \*=? )|(?P<divide> /=? )|(?P<add> [-+]=? )"
    r"|(?P<compare> (?:<=?|>=?|==|!=|\?) )"
)


class Cost(NamedTuple):
    """Operations of a step by kind, and the cycles that they take."""

    operations: dict[str, int]
    cycles: int


def cost(source: str, function: str, precision: str) -> Cost:
    """The cost of a call of a function of generated C, with all that it calls.

    >>> code = "static int f(real *x)\\n{\\n    for (int i = 0; i < 3; ++i) { x[i] = x[i] * x[i] + x[0]; }\\n}\\n"
    >>> cost(code, "f", "float").operations["multiply"]
    3
    """
    known = {match[1]: (match[2], match[3]) for match in _FUNCTION.finditer(source)}
    total = _count(known, function, {})
    table = CYCLES[precision]
    return Cost(dict(total), round(sum(table[kind] * count for kind, count in total.items())))


def _count(known: dict[str, tuple[str, str]], name: str, numbers: dict[str, float]) -> Counter[str]:
    """Operations of a function whose integer arguments are these."""
    calls = re.compile(rf"\b({'|'.join(known)})\(")
    total: Counter[str] = Counter()
    depths: list[tuple[int, float]] = []
    depth, often = 0, 1.0
    values = dict(numbers)
    text = re.sub(r"/\*.*?\*/", "", known[name][1], flags=re.S)
    for line in text.splitlines():
        loop = _LOOP.search(line)
        constant = re.match(r"\s*const int (\w+) = ([^;]+);", line)
        if constant and (value := _number(constant[2], values)) is not None:
            values[constant[1]] = value
        inner, body = often, line
        if loop is not None:
            start, stop = _number(loop[2], values), _number(loop[4], values)
            count = 1.0 if start is None or stop is None else abs(stop - start) + (loop[3] in ("<=", ">="))
            if start is None and stop is not None:
                count = 0.5 * stop  # from or to another loop's variable: half of a square
            values.setdefault(loop[1], (stop or 0.0) / 2)
            inner, body = often * count, line[loop.end() :]
        found = [(match[1], match.end()) for match in calls.finditer(body)]
        for called, at in found:
            arguments = _arguments(body[at:])
            given = {
                parameter.split()[-1].lstrip("*"): number
                for parameter, argument in zip(known[called][0].replace("\n", " ").split(","), arguments, strict=False)
                if (number := _number(argument, values)) is not None
            }
            for kind, count in _count(known, called, given).items():
                total[kind] += round(inner * count)
        for match in _TOKEN.finditer(_INDEX.sub("[]", body)):  # what an index is computed from costs next to nothing
            assert match.lastgroup is not None
            total[match.lastgroup] += round(inner)
        opened, closed = line.count("{"), line.count("}")
        if loop is not None and opened > closed:
            depths.append((depth, often))
            often = inner
        depth += opened - closed
        while depths and depth <= depths[-1][0]:
            often = depths.pop()[1]
    return total


def _number(text: str, values: dict[str, float]) -> float | None:
    """The value of an expression of integers and known names."""
    if not re.fullmatch(r"[\w\s+*()-]+", text):
        return None
    total = 0.0
    for sign, term in re.findall(r"([-+]?)([^-+]+)", text.replace(" ", "")):
        product = 1.0
        for factor in term.strip("()").split("*"):
            if factor.isdigit():
                product *= int(factor)
            elif factor in values:
                product *= values[factor]
            else:
                return None
        total += -product if sign == "-" else product
    return total


def _arguments(text: str) -> list[str]:
    """The arguments of a call, from behind its bracket."""
    found, depth, current = [], 0, ""
    for letter in text:
        if letter == ")" and depth == 0:
            break
        if letter == "," and depth == 0:
            found.append(current.strip())
            current = ""
            continue
        depth += (letter in "([") - (letter in ")]")
        current += letter
    return [*found, current.strip()]


def warnings(facts: dict[str, Any], rate: float | None) -> list[str]:
    """What a Cortex-M4 cannot take of an export, at the rate at which its filter runs."""
    found = []
    cycles, stack = facts["cycles"], facts["ram"]["scratch on the stack"]
    if rate is not None and cycles * rate > SHARE * CLOCK:
        share = 100 * cycles * rate / CLOCK
        found.append(
            f"a Cortex-M4 at {CLOCK / 1e6:.0f} MHz cannot take it at {rate:.4g} Hz: a step is about {cycles:,} cycles, "
            f"{share:.0f} % of its time ({100 * SHARE:.0f} % is the limit); {_cheaper(facts)}"
        )
    if stack > STACK:
        found.append(f"{stack:,} bytes of stack are more than the {STACK:,} that a task usually has; {_cheaper(facts)}")
    ram = sum(size for name, size in facts["ram"].items() if "stack" not in name)
    flash = max(facts["flash"].values(), default=facts["constants"])
    for what, size, most in (("RAM", ram, RAM), ("flash", flash, FLASH)):
        if size > most:
            found.append(f"{size:,} bytes of {what} are more than the {most:,} of such a processor; {_cheaper(facts)}")
    return found


def _cheaper(facts: dict[str, Any]) -> str:
    ways: Sequence[str] = [
        way
        for way, useful in (
            ("--precision float", facts["precision"] == "double"),
            ("--fixed-step", facts.get("takes_dt", False)),
            ("fewer --outputs", True),
            ("fewer lines in the filter, or a lower rate", True),
        )
        if useful
    ]
    return f"use {', or '.join(ways)}"
