"""Tables from CSV and Parquet files, and error messages with file and line."""

from __future__ import annotations

import builtins
import hashlib
import importlib

import numpy as np
import pytest

from fwnkf.errors import ConfigError, DataError
from fwnkf.logs import find_tables, read_table, table
from tests.data.test_fuzz import BINARY, TABLE, alarm


def write(folder, text, name="run.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def expect_error(folder, text, *words, columns=None):
    with pytest.raises(DataError) as caught:
        read_table(write(folder, text), columns)
    for word in ("run.csv", *words):
        assert word in str(caught.value)


# ---- CSV ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_separators_line_ends_and_byte_order_marks(tmp_path, separator, end, encoding):
    rows = [["t [s]", "x", "y (m/s)"], ["0", "1.5", "-2e-3"], ["0.1", "", " NaN"], ["0.2", "null", "7"]]
    path = write(tmp_path, end.join(separator.join(row) for row in rows) + end, encoding=encoding)
    result = read_table(path)
    assert result.name == "run"
    assert result.path == path
    assert result.units == {"t": "s", "y": "m/s"}
    np.testing.assert_array_equal(result.columns["t"], [0.0, 0.1, 0.2])
    np.testing.assert_array_equal(result.columns["x"], [1.5, np.nan, np.nan])
    np.testing.assert_array_equal(result.columns["y"], [-0.002, np.nan, 7.0])
    assert all(values.dtype == np.float64 for values in result.columns.values())
    assert result.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_numbers_equal_pythons_to_the_last_bit(tmp_path, rng):
    values = rng.standard_normal((500, 3)) * 10.0 ** rng.integers(-200, 200, (500, 3))
    text = "a,b,c\n" + "\n".join(",".join(repr(float(v)) for v in row) for row in values)
    result = read_table(write(tmp_path, text))
    np.testing.assert_array_equal(np.stack([result.columns[name] for name in "abc"], -1), values)


def test_blocks_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "BLOCK", 7)
    rows = [f"{i},{'' if i % 5 == 0 else i * i}" for i in range(50)]
    result = read_table(write(tmp_path, "a,b\n" + "\n".join(rows)))
    np.testing.assert_array_equal(result.columns["a"], np.arange(50))
    np.testing.assert_array_equal(result.columns["b"], [np.nan if i % 5 == 0 else i * i for i in range(50)])
    expect_error(tmp_path, "a,b\n" + "\n".join([*rows, "1,oops"]), "line 52", "column 2 (b)", "oops")


def test_comments_and_empty_lines_are_skipped_but_count_as_lines(tmp_path):
    text = "# made by hand\n\nt,x\n# a comment\n0,1\n\n1,2\n"
    np.testing.assert_array_equal(read_table(write(tmp_path, text)).columns["x"], [1.0, 2.0])
    expect_error(tmp_path, text + "2,bad\n", "line 8", "column 2 (x)", "'bad' is not a number")


def test_a_header_may_be_a_comment(tmp_path):
    result = read_table(write(tmp_path, "# recorded today\n#timestamp [ns],w_x [rad s^-1]\n1,2\n3,4\n"))
    assert result.units == {"timestamp": "ns", "w_x": "rad s^-1"}
    np.testing.assert_array_equal(result.columns["timestamp"], [1.0, 3.0])


def test_columns_are_selected_with_or_without_unit(tmp_path):
    path = write(tmp_path, "t,gps_x [m],mode\n0,1,auto\n1,2,hand\n")
    for name in ("gps_x", "gps_x [m]"):
        result = read_table(path, ["t", name])
        assert list(result.columns) == ["t", "gps_x"]
        np.testing.assert_array_equal(result.column(name), [1.0, 2.0])
        assert result.unit(name) == "m"
    assert result.header == ("t", "gps_x [m]", "mode")
    with pytest.raises(DataError, match="did you mean 'gps_x"):
        read_table(path, ["GPS-X"])
    with pytest.raises(DataError, match=r"line 2, column 3 \(mode\): 'auto' is not a number"):
        read_table(path)


def test_brackets_that_distinguish_columns_are_part_of_the_name(tmp_path):
    result = read_table(write(tmp_path, "speed (left),speed (right)\n1,2\n"))
    assert list(result.columns) == ["speed (left)", "speed (right)"]
    assert result.units == {}


def test_a_column_without_a_name_is_skipped(tmp_path):
    assert list(read_table(write(tmp_path, ",a\n0,1\n1,2\n")).columns) == ["a"]


def test_quoted_cells(tmp_path):
    result = read_table(write(tmp_path, '"t","x, forward [m]"\n"0","1.5"\n'))
    assert result.columns["x, forward"][0] == 1.5


def test_dates_are_converted_to_seconds(tmp_path):
    text = "t,x\n1970-01-02T00:00:00Z,1\n1970-01-02 00:00:00.25,2\n1970-01-02T02:00:00.5+02:00,3\n"
    result = read_table(write(tmp_path, text))
    np.testing.assert_array_equal(result.columns["t"], [86400.0, 86400.25, 86400.5])
    assert result.units == {"t": "s"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("\n \n", ["empty"]),
        ("# nothing\n", ["comments only"]),
        ("a,b\n", ["no rows"]),
        ("1,2\n3,4\n", ["line 1", "header"]),
        ("a,b\n1,2\n3\n", ["line 3", "1 cell(s)", "2 columns"]),
        ("a,b\n1,2,3\n", ["line 2", "3 cell(s)"]),
        ("a,b,a\n1,2,3\n", ["columns 1 and 3", "'a'"]),
        ("a;b\n1,5;2\n", ["line 2", "column 1 (a)", "decimals with a point"]),
        ("a,b\n1_000,2\n", ["1_000"]),
        ("a,b\n١٢,2\n", ["line 2"]),
        ('a,b\n"1,2\n', ["line 2"]),
        ("a,b\n1," + "9" * 200_000 + "x\n", ["line 2"]),
    ],
)
def test_errors_name_file_line_and_column(tmp_path, text, words):
    expect_error(tmp_path, text, *words)


def test_files_that_are_not_tables_are_refused(tmp_path, monkeypatch):
    (tmp_path / "latin.csv").write_bytes("t,x [°]\n1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_table(tmp_path / "latin.csv")
    with pytest.raises(DataError, match="does not exist"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"\.csv or \.parquet"):
        read_table(write(tmp_path, "a\n1\n", "run.xlsx"))
    path = write(tmp_path, "a\n1\n2\n3\n")
    monkeypatch.setattr(table, "ROW_LIMIT", 2)
    with pytest.raises(DataError, match="more than 2 rows"):
        read_table(path)
    monkeypatch.setattr(table, "FILE_LIMIT", 5)
    with pytest.raises(DataError, match="larger than 5 bytes"):
        read_table(path)


def test_find_tables(tmp_path):
    for name in ("b.csv", "a.parquet", "C.CSV", ".hidden.csv", "notes.txt"):
        write(tmp_path, "a\n1\n", name)
    assert [path.name for path in find_tables(tmp_path)] == ["C.CSV", "a.parquet", "b.csv"]
    assert find_tables(tmp_path / "b.csv") == [tmp_path / "b.csv"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="contains no"):
        find_tables(tmp_path / "empty")
    with pytest.raises(DataError, match="does not exist"):
        find_tables(tmp_path / "nowhere")


# ---- Parquet --------------------------------------------------------------------------------------------------------


def parquet(folder, columns, units=None, name="run.parquet", **options):
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    content = arrow.table(columns)
    fields = [f.with_metadata({b"unit": units[f.name]}) if f.name in (units or {}) else f for f in content.schema]
    writer.write_table(content.cast(arrow.schema(fields)), folder / name, **options)
    return folder / name


def test_parquet_types_nulls_and_units(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    columns = {
        "stamp": arrow.array([0, 5_000_000, None], arrow.timestamp("ns")),
        "x": arrow.array([1.5, None, 3.5], arrow.float32()),
        "n [m]": arrow.array([1, 2, 3], arrow.int16()),
        "on": arrow.array([True, False, None]),
        "mode": ["a", "b", "c"],
    }
    path = parquet(tmp_path, columns, {"x": b"rad/s"}, row_group_size=2)
    result = read_table(path, ["stamp", "x", "n", "on"])
    assert result.units == {"stamp": "ns", "x": "rad/s", "n": "m"}
    np.testing.assert_array_equal(result.columns["stamp"], [0.0, 5e6, np.nan])
    np.testing.assert_array_equal(result.columns["x"], [1.5, np.nan, 3.5])
    np.testing.assert_array_equal(result.columns["n"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(result.columns["on"], [1.0, 0.0, np.nan])
    assert result.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DataError, match="'mode' holds string"):
        read_table(path)
    with pytest.raises(DataError, match="did you mean"):
        read_table(path, ["stamps"])


def test_csv_and_parquet_of_the_same_numbers_agree(tmp_path, rng):
    values = {name: rng.standard_normal(100) for name in ("t", "x")}
    from_parquet = read_table(parquet(tmp_path, values))
    rows = "\n".join(f"{float(a)!r},{float(b)!r}" for a, b in zip(*values.values(), strict=True))
    from_csv = read_table(write(tmp_path, f"t,x\n{rows}\n"))
    for name in values:
        np.testing.assert_array_equal(from_parquet.columns[name], from_csv.columns[name])


def test_without_pyarrow_csv_works_and_parquet_names_the_extra(tmp_path, monkeypatch):
    path = parquet(tmp_path, {"a": [1.0]})
    real = importlib.import_module

    def absent(name, *rest):
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    def refused(name, *rest, **more):
        assert not name.startswith("pyarrow")
        return builtin(name, *rest, **more)

    builtin = builtins.__import__
    monkeypatch.setattr(importlib, "import_module", absent)
    monkeypatch.setattr(builtins, "__import__", refused)
    assert read_table(write(tmp_path, "a\n1\n")).columns["a"][0] == 1.0
    with pytest.raises(ConfigError, match=r"fwnkf\[tables\]"):
        read_table(path)


# ---- mutants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_mutated_files_are_read_or_refused(tmp_path, rng, kind):
    values = {name: rng.standard_normal(40) for name in ("t", "x", "y")}
    if kind == "parquet":
        path, mutations = parquet(tmp_path, values), BINARY
    else:
        rows = "\n".join(",".join(f"{v:.6f}" for v in row) for row in zip(*values.values(), strict=True))
        path, mutations = write(tmp_path, f"t [s],x [m],y\n{rows}\n"), TABLE
    original, refused = path.read_bytes(), 0
    for _ in range(300):
        data = original
        for _ in range(int(rng.integers(1, 3))):
            try:
                data = mutations[int(rng.integers(len(mutations)))](data, rng)
            except Exception:  # a second mutation may not apply to the result of the first
                break
        path.write_bytes(data)
        with alarm():
            try:
                result = read_table(path)
            except DataError as error:
                refused, message = refused + 1, str(error)
            else:
                message = "the file was read without error"
                assert len({len(values) for values in result.columns.values()}) <= 1
        assert 20 < len(message) < 2000
    assert refused > 50
