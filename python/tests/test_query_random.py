"""Random queries, answered by DuckDB over the same rows, and by NumPy over the same arrays: the answers are the same.

Complex numbers, which DuckDB has not, are answered as NumPy does.

`TERRACE_RANDOM_QUERIES=10000 TERRACE_RANDOM_SEED=7 pytest test_query_random.py` asks more, and others.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import terrace

pyarrow = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

COUNT = int(os.environ.get("TERRACE_RANDOM_QUERIES", "100"))
SEED = int(os.environ.get("TERRACE_RANDOM_SEED", "20261123"))
SHAPE = (13, 17)
# Whole numbers, floats whose sums and products are exact, and floats that decimals name.
WHOLE, BINARY, DECIMAL = ("i", "u", "l"), ("f", "g"), ("s", "d")
COMPLEX = ("c", "z")


@pytest.fixture(scope="module")
def world(run) -> Iterator[tuple[terrace.Session, Any, dict[str, np.ndarray]]]:
    """The container `world` (x, y) and `along` (x), and the same as DuckDB's tables."""
    os.environ.setdefault("TERRACE_QUERY", str(terrace_query()))
    chance = np.random.default_rng(3)
    arrays = {
        "i": chance.integers(-1000, 1000, SHAPE).astype("i4"),
        "u": chance.integers(0, 256, SHAPE).astype("u1"),
        "l": chance.integers(-(10**6), 10**6, SHAPE),
        "f": (chance.integers(-80, 80, SHAPE) / 8).astype("f4"),
        "g": chance.integers(-400, 400, SHAPE) / 8,
        "s": (chance.integers(0, 100, SHAPE) / 10).astype("f4"),
        "d": chance.integers(0, 100, SHAPE) / 10,
    }
    for name, kind in zip(COMPLEX, ("c8", "c16")):
        arrays[name] = ((chance.integers(-40, 40, SHAPE) + 1j * chance.integers(-40, 40, SHAPE)) / 8).astype(kind)
    session = terrace.connect()
    container = session.create_container("world")
    for name, values in arrays.items():
        array = container.create_array(name, SHAPE, values.dtype, dimensions=["x", "y"])
        # In several regions, of which some lie over others.
        array[...] = 0
        array[:7] = values[:7]
        array[5:, :9] = values[5:, :9]
        array[7:, 9:] = values[7:, 9:]
    along = chance.integers(-5, 5, SHAPE[0])
    session.create_container("along").create_array("k", SHAPE[:1], "i8", dimensions=["x"])[...] = along
    x, y = np.indices(SHAPE)
    columns = {"x": x.ravel(), "y": y.ravel(), **{name: values.ravel() for name, values in arrays.items() if name not in COMPLEX}}
    other = duckdb.connect()
    other.register("rows", pyarrow.table(columns))
    other.execute("CREATE TABLE world AS SELECT * FROM rows")
    other.register("more", pyarrow.table({"x": np.arange(SHAPE[0]), "k": along}))
    other.execute("CREATE TABLE along AS SELECT * FROM more")
    yield session, other, arrays
    other.close()


def terrace_query() -> Any:
    from flight_server import PROGRAM

    return PROGRAM


class Asker:
    """Makes queries. A whole number that arithmetic is done on is written `{i}`: DuckDB computes in a column's own type."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def whole(self, of: str = "", depth: int = 2) -> str:
        if depth == 0 or self.chance.random() < 0.3:
            return self.pick(f"{{{of}x}}", f"{{{of}y}}", *(f"{{{of}{name}}}" for name in WHOLE), str(self.chance.randint(-9, 300)))
        a, b = self.whole(of, depth - 1), self.whole(of, depth - 1)
        # Products that always fit: when evaluation of what is no row may fail, engines differ.
        product = f"({self.whole(of, 0)} * {self.whole(of, 0)})"
        return self.pick(f"({a} + {b})", f"({a} - {b})", product, f"({a} * 9)", f"abs({a})", f"({a} % 7)", f"CASE WHEN {a} < {b} THEN {a} ELSE {b} END")

    def real(self, of: str = "", depth: int = 2) -> str:
        if depth == 0 or self.chance.random() < 0.3:
            return self.pick(*(f"{of}{name}" for name in BINARY))
        a, b = self.real(of, depth - 1), self.real(of, 0)
        # Without a zero that has a sign: to Arrow it is another value than zero.
        ceiling = f"(ceil({a}) + 0)"
        return self.pick(f"({a} + {b})", f"({a} - {b})", f"({a} * 2)", f"abs({a})", f"floor({a})", ceiling, f"({a} + 0.125)")

    def decimal(self) -> str:
        return f"{self.chance.randint(0, 100) / 10}"

    def predicate(self, of: str = "", depth: int = 2) -> str:
        if depth > 0 and self.chance.random() < 0.5:
            a, b = self.predicate(of, depth - 1), self.predicate(of, depth - 1)
            return self.pick(f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})")
        compare = self.pick("=", "<>", "<", "<=", ">", ">=")
        name = of + self.pick(*DECIMAL)
        return self.pick(
            f"{name} {compare} {self.decimal()}",
            f"{name} {self.pick('', 'NOT ')}IN ({self.decimal()}, {self.decimal()}, {self.decimal()})",
            f"{name} BETWEEN {self.decimal()} AND {self.decimal()}",
            f"{self.whole(of)} {compare} {self.whole(of, 1)}",
            f"{of}{self.pick('x', 'y')} {compare} {self.chance.randint(-1, 14)}",
            f"{of}{self.pick('x', 'y')} BETWEEN {self.chance.randint(0, 6)} AND {self.chance.randint(4, 16)}",
            f"{of}x IN ({self.chance.randint(0, 13)}, {self.chance.randint(0, 13)})",
            f"{self.real(of)} {compare} {self.real(of, 1)}",
            f"{of}{self.pick(*WHOLE)} {compare} {self.chance.randint(-300, 300)}",
        )

    def aggregate(self, of: str = "") -> str:
        function = self.pick("sum", "min", "max", "avg", "count", "count(DISTINCT", "median")
        value = self.pick(self.whole(of), self.real(of), of + self.pick(*WHOLE), of + self.pick(*BINARY))
        if "DISTINCT" in function:
            # Not of a CASE: the engine fails at some (docs/guide/queries.md, Limits).
            value = of + self.pick(*WHOLE, *BINARY)
        if function == "median":
            # Of whole numbers it is one in DataFusion, and lies between two of them in DuckDB.
            value = f"CAST({value} AS DOUBLE)"
        return f"{function} {value})" if function.endswith("DISTINCT") else f"{function}({value})"

    def query(self) -> tuple[str, bool]:
        """A query, and whether its rows have an order."""
        where = self.pick("", f"WHERE {self.predicate()}", f"WHERE {self.predicate()}")
        value = self.pick(self.whole, self.real)
        aggregates = ", ".join(f"{self.aggregate()} AS a{number}" for number in range(self.chance.randint(1, 3)))
        keys = self.pick("x", "y", "x, y", "u % 3", "l > 0", "y, s", "x, u % 2", "x % 4", "y % 3, x < 5", "floor(x / 2.0), y > 8")
        names = ", ".join(f"{key} AS k{number}" for number, key in enumerate(keys.split(", ")))
        order = self.pick("e", "e DESC")
        match self.chance.randrange(9):
            case 0 | 1:
                return f"SELECT x, y, {value()} AS e, {self.pick(*DECIMAL)} FROM world {where}", False
            case 2 | 3:
                having = self.pick("", f"HAVING count(*) > {self.chance.randint(0, 9)}")
                return f"SELECT {names}, {aggregates} FROM world {where} GROUP BY {keys} {having}", False
            case 4:
                return f"SELECT {aggregates}, count(*) AS n FROM world {where}", False
            case 5:
                limit = f"LIMIT {self.chance.randint(0, 30)} OFFSET {self.chance.randint(0, 5)}"
                return f"SELECT x, y, {value()} AS e FROM world {where} ORDER BY {order}, x, y {limit}", True
            case 6:
                on = self.pick("a.x = b.x AND a.y = b.y", "a.x = b.x AND a.y = b.y AND a.u > b.i", "a.x = b.y AND a.y = b.x", "a.u = b.u AND a.y = b.y",
                               "a.x = b.x + 1 AND a.y = b.y", "a.x - 2 = b.x AND a.y + 1 = b.y + 3", "a.x = b.x * 2 AND a.y = b.y")
                kind = self.pick("JOIN", "JOIN", "LEFT JOIN")
                rest = self.pick("", f"WHERE {self.predicate('a.')}")
                return f"SELECT a.x, a.y, b.x AS bx, {self.whole('a.')} AS e, {self.real('b.')} AS h FROM world a {kind} world b ON {on} {rest}", False
            case 7:
                inner = self.pick("SELECT x FROM along WHERE k > 0", f"SELECT y FROM world WHERE {self.predicate()}")
                return f"SELECT k, {aggregates} FROM world JOIN along USING (x) WHERE y {self.pick('', 'NOT ')}IN ({inner}) GROUP BY k", False
            case _:
                function = self.pick("lag(l)", "lead(i, 2)", "row_number()", f"sum({value()})", "max(u)", "count(*)")
                over = self.pick("PARTITION BY x ORDER BY y", "PARTITION BY y ORDER BY x", "ORDER BY x, y")
                return f"SELECT x, y, {function} OVER ({over}) AS e FROM world {where}", False


def for_duckdb(query: str) -> str:
    parts = query.split("{")
    return parts[0] + "".join(f"CAST({name} AS BIGINT){rest}" for name, rest in (part.split("}", 1) for part in parts[1:]))


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return float(np.float32(value)) if isinstance(value, np.float32) else value


def key(row: tuple) -> tuple:
    # Neighbouring floats are the same to the order.
    return tuple((value is None, float(f"{float(value):.6g}") if value is not None else 0.0) for value in row)


def is_same(a: Any, b: Any) -> bool:
    if a is None or b is None or isinstance(a, bool) or isinstance(b, bool):
        return a == b
    return a == b if isinstance(a, int) and isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def test_random_queries_are_answered_as_duckdb_answers_them(world):
    session, other, _ = world
    told = 0
    for number in range(COUNT):
        query, is_ordered = Asker(random.Random(SEED * 1_000_003 + number)).query()
        ours = query.replace("{", "").replace("}", "")
        where = f"query {number} of seed {SEED}: {ours}"
        wanted = [tuple(map(plain, row)) for row in other.execute(for_duckdb(query)).fetchall()]
        try:
            table = session.sql(ours).arrow()
        except terrace.TerraceError as error:
            pytest.fail(f"{where}: {error}")
        found = [tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in table.columns))]
        if not is_ordered:
            wanted, found = sorted(wanted, key=key), sorted(found, key=key)
        assert len(found) == len(wanted), where
        for row, expected in zip(found, wanted):
            assert len(row) == len(expected) and all(map(is_same, row, expected)), f"{where}: {row}, not {expected}"
        told += len(found) > 0
    assert told > COUNT / 2, "most queries have rows"


def test_random_slices_and_reductions_are_answered_as_numpy_answers_them(world):
    session, _, arrays = world
    functions = {"sum": np.sum, "min": np.min, "max": np.max, "avg": np.mean}
    for number in range(COUNT):
        chance = random.Random(SEED * 1_000_033 + number)
        name, function = chance.choice([*WHOLE, *BINARY, *DECIMAL]), chance.choice(list(functions))
        (left, right), (low, high) = (sorted(chance.sample(range(extent + 1), 2)) for extent in SHAPE)
        cells = arrays[name][left:right, low:high]
        cells = cells.astype("f8" if cells.dtype.kind == "f" else "i8")
        axis = chance.choice([None, 0, 1])
        group = {None: "", 0: "GROUP BY y ORDER BY y", 1: "GROUP BY x ORDER BY x"}[axis]
        query = f"SELECT {function}({name}) AS e FROM world WHERE x >= {left} AND x < {right} AND y BETWEEN {low} AND {high - 1} {group}"
        found = session.sql(query).numpy()["e"]
        np.testing.assert_allclose(found, np.atleast_1d(functions[function](cells, axis=axis)), rtol=1e-9, err_msg=f"{number} of {SEED}: {query}")


class ComplexAsker:
    """Makes expressions of complex numbers: as SQL, their values, and whether these are complex64 (None: of constants alone)."""

    def __init__(self, chance: random.Random, arrays: dict[str, np.ndarray]) -> None:
        self.chance, self.arrays = chance, arrays

    def column(self, name: str) -> tuple[str, np.ndarray, bool]:
        values = self.arrays[name]
        return name, values.astype("c16"), np.result_type(values.dtype, np.complex64) == np.complex64

    def constant(self) -> tuple[str, np.ndarray, None]:
        re, im = self.chance.randint(-40, 40) / 8, self.chance.randint(-40, 40) / 8
        text, value = self.chance.choice([(f"{re}", re), (f"complex({re}, {im})", complex(re, im)), (f"{int(re)}", int(re))])
        return text, np.full(SHAPE, value, "c16"), None

    def number(self, depth: int = 2) -> tuple[str, np.ndarray, bool]:
        """A complex one."""
        if depth == 0 or self.chance.random() < 0.2:
            return self.column(self.chance.choice(COMPLEX))
        a, left, left_single = self.number(depth - 1)
        if self.chance.random() < 0.2:
            return f"conj({a})", np.conj(left), left_single
        other = self.chance.choice([self.constant, lambda: self.number(depth - 1), lambda: self.column(self.chance.choice([*WHOLE, *BINARY]))])
        b, right, right_single = other()
        sign, function = self.chance.choice([("+", np.add), ("-", np.subtract), ("*", np.multiply), ("/", np.divide)])
        if self.chance.random() < 0.5:
            a, left, b, right = b, right, a, left
        is_single = left_single if right_single is None else left_single and right_single
        with np.errstate(all="ignore"):
            values = function(left, right)
            return f"({a} {sign} {b})", values.astype("c8").astype("c16") if is_single else values, is_single


def test_random_expressions_of_complex_numbers_are_answered_as_numpy_answers_them(world):
    session, _, arrays = world
    parts = {"real": np.real, "imag": np.imag, "abs": np.abs, "arg": np.angle, "conj": np.conj, "": lambda values: values}
    for number in range(COUNT):
        chance = random.Random(SEED * 1_000_037 + number)
        asker = ComplexAsker(chance, arrays)
        (text, values, is_single), (other, others, _) = asker.number(), asker.number(1)
        function = chance.choice(list(parts))
        query = f"SELECT x, y, {text} AS whole, {function}({text}) AS part, {text} = {other} AS same FROM world ORDER BY x, y"
        where = f"expression {number} of seed {SEED}: {query}"
        found = session.sql(query).numpy()
        assert found["whole"].dtype == (np.complex64 if is_single else np.complex128), where
        with np.errstate(all="ignore"):
            wanted = parts[function](values)
        # The last bit of a 32-bit float, of the greater part.
        near = 1e-6 if is_single else 1e-12
        is_finite = np.isfinite(values).ravel()
        for got, want in [("whole", values), ("part", wanted)]:
            want = want.ravel()[is_finite]
            scale = max(1.0, float(np.abs(values.ravel()[is_finite]).max(initial=0.0)))
            own = found[got][is_finite]
            if got == "part" and function == "arg":
                # An angle just above the cut and one just below it are neighbours.
                own, want = np.exp(1j * own), np.exp(1j * want)
            np.testing.assert_allclose(own, want, rtol=near, atol=near * scale, err_msg=where)
        # Another rounding may part two that NumPy holds to be equal, where they were divided.
        if "/" not in query:
            assert (found["same"] == (values == others).ravel()).all(), where
        name, axis = chance.choice(COMPLEX), chance.choice([0, 1])
        key = "yx"[axis]
        query = f"SELECT {key}, sum({name}) AS total, mean({name} * 2) AS middle FROM world GROUP BY {key} ORDER BY {key}"
        found = session.sql(query).numpy()
        np.testing.assert_allclose(found["total"], arrays[name].astype("c16").sum(axis=axis), rtol=1e-9, atol=1e-9, err_msg=query)
        np.testing.assert_allclose(found["middle"], arrays[name].astype("c16").mean(axis=axis) * 2, rtol=1e-9, atol=1e-9, err_msg=query)
