"""Holds an implementation of attention to the cases beside this file, and names the faults it has.

    python suite/check.py my_attention.py
    python suite/check.py --command "target/release/my_attention" --precision f32

From a program: `check.check(attention=my_function)` returns a report, which prints as a table.
FORMAT.md says what a case holds and what a candidate implements. This file needs only the standard
library, and for a candidate in Python the framework of that candidate.
"""

import argparse
import dataclasses
import difflib
import importlib.machinery
import importlib.util
import inspect
import json
import math
import os
import pathlib
import platform
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

VERSION = 1
WIDTH = 100
SILENCE = 10.0  # Seconds that a program may take for an answer.
PATIENCE = 60.0  # The same for a file in Python, whose framework may have to be loaded or to compile.
PRECISIONS = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}
FRAMEWORKS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}

# For each operation: the inputs that every case has, the inputs with a default, the results in order.
ATTENTION = {"causal": False, "mask": None, "window": None, "scale": None, "slopes": None, "softcap": None}
OPERATIONS: Dict[str, Tuple[List[str], Dict[str, Any], List[str]]] = {
    "attention": (["q", "k", "v"], ATTENTION, ["output", "log_sum_exp"]),
    "attention_gradients": (["q", "k", "v", "d_output"], ATTENTION, ["output", "d_q", "d_k", "d_v"]),
    "attention_dropout": (["q", "k", "v", "dropout", "training"], {**ATTENTION, "repeats": 1}, ["output", "products"]),
    "multi_head": (["x", "w_q", "w_k", "w_v", "w_o", "heads"], {"causal": False}, ["output"]),
    "rotate": (["x", "positions", "pairs"], {"base": 10000}, ["output"]),
    "decode": (["chunks"], {"window": None, "rotary": None, "padding": 0}, ["output"]),
    "merge": (["outputs", "log_sum_exps"], {}, ["output", "log_sum_exp"]),
    "alibi_slopes": (["heads"], {}, ["output"]),
    "linear_attention": (["q", "k", "v"], {"causal": True}, ["output"]),
    "latent_attention": (["q", "latent", "w_uk", "w_uv", "k_rope"], {"causal": False, "rotary": None}, ["output"]),
}
NUMBERS = {"q", "k", "v", "d_output", "x", "w_q", "w_k", "w_v", "w_o", "slopes", "latent", "w_uk", "w_uv", "k_rope"}  # In the precision.


class Mistake(Exception):
    """Something that the person who called us has to change. Its text is the message."""


class Unsupported(Exception):
    """The candidate doesn't claim what a case asks for."""


class Broken(Exception):
    """The candidate gave no result that can be compared. Its text says why."""


# ---------------------------------------------------------------------------------------- arrays

@dataclasses.dataclass
class Array:
    """Numbers of any shape, in row-major order."""

    shape: Tuple[int, ...]
    numbers: List[float]
    kind: str = ""  # The candidate's name for the type of the numbers, where there is one.


def array(value: Any, what: str) -> Array:
    """An array from nested lists. Refuses rows that differ in length, and says of what."""
    if isinstance(value, list):
        rows = [array(row, what) for row in value]
        if any(row.shape != rows[0].shape for row in rows):
            raise ValueError(f"{what}: the rows differ in length")
        return Array((len(rows),) + (rows[0].shape if rows else ()), [n for row in rows for n in row.numbers])
    if value in ("NaN", "inf", "-inf") or isinstance(value, (int, float)) and not isinstance(value, bool):
        return Array((), [float(value)])
    raise ValueError(f"{what}: {value!r} isn't a number")


def nested(values: List[float], shape: Tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    return [nested(values[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]


def distance(given: Array, right: Array) -> float:
    """The largest difference, relative where the right number is above 1.

    It is infinite where only one of two numbers is NaN or infinite, or where the shapes differ.
    """
    if given.shape != right.shape:
        return math.inf
    largest = 0.0
    for x, y in zip(given.numbers, right.numbers):
        if not (x == y or x != x and y != y):
            gap = abs(x - y) / max(1.0, abs(y))
            largest = max(largest, gap if math.isfinite(gap) else math.inf)
    return largest


def rounded(n: float) -> Any:
    if not math.isfinite(n):
        return str(n).replace("nan", "NaN")
    return int(n) if n == int(n) and abs(n) < 1e6 else float(f"{n:.5g}")


def show(a: Array, other: Array) -> str:
    """The array if it is short, or the three of its numbers that differ most from the other array's."""
    if a.shape != other.shape:
        return f"the shape {a.shape}"
    whole = json.dumps(nested([rounded(n) for n in a.numbers], a.shape)).replace('"', "")
    if max(len(a.numbers), len(other.numbers)) <= 12 and len(whole) <= 72:
        return whole
    gaps = [0 if x == y or x != x and y != y else abs(x - y) for x, y in zip(a.numbers, other.numbers)]
    places = sorted(range(len(gaps)), key=lambda i: -gaps[i] if gaps[i] == gaps[i] else -math.inf)[:3]
    shown = []
    for i in sorted(place for place in places if gaps[place]):
        index, rest = [], i
        for size in reversed(a.shape):
            index.insert(0, rest % size)
            rest //= size
        shown.append(f"{rounded(a.numbers[i])} at {index}")
    return ", ".join(shown) + ", …"


# ----------------------------------------------------------------------------------------- cases

@dataclasses.dataclass
class Case:
    operation: str
    name: str
    says: str
    inputs: Dict[str, Any]
    results: Dict[str, Array]
    tolerance: Dict[str, float]
    faults: Dict[str, Dict[str, Array]]
    same_bits: List[Dict[str, Any]] = dataclasses.field(default_factory=list)  # Calls with the bits of the first one.

    def tells_apart(self, fault: str, names: List[str], tolerance: float) -> bool:
        """Whether the fault changes any of these results by more than the tolerance."""
        wrong = self.faults[fault]
        return any(n in wrong and not distance(wrong[n], self.results[n]) <= tolerance for n in names)


@dataclasses.dataclass
class Suite:
    cases: List[Case]
    faults: Dict[str, Dict[str, Any]]
    unread: List[str]  # A line for each file or case that can't be read, and why.
    groups: List[str] = dataclasses.field(default_factory=list)  # What the faults of each number are about, from 1 on.

    def number_of(self, fault: str) -> int:
        return self.faults.get(fault, {}).get("number", 0)

    def about(self, group: int) -> str:
        return str(self.groups[group - 1]) if 0 < group <= len(self.groups) else "other faults"


def parse_results(value: Dict[str, Any], names: List[str]) -> Dict[str, Array]:
    return {name: array(value[name], f"result `{name}`") for name in value if name in names}


def parse_case(operation: str, case: Dict[str, Any]) -> Case:
    if not isinstance(case.get("name"), str):
        raise ValueError("it has no `name`")
    required, optional, names = OPERATIONS[operation]
    for key in ("inputs", "results", "tolerance"):
        if not isinstance(case.get(key), dict):
            raise ValueError(f"it has no `{key}`")
    inputs = {k: v for k, v in case["inputs"].items() if k in required or k in optional}
    for name in required:
        if name not in inputs:
            raise ValueError(f"its inputs have no `{name}`")
    for name in NUMBERS & set(inputs):
        array(inputs[name], f"input `{name}`")
    results = parse_results(case["results"], names)
    if "output" not in results:
        raise ValueError("its results have no `output`")
    faults = {}
    for fault in case.get("faults", []):
        if not isinstance(fault, dict) or "fault" not in fault or not isinstance(fault.get("results"), dict):
            raise ValueError("one of its faults has no `fault` or no `results`")
        faults[fault["fault"]] = parse_results(fault["results"], list(results))
    tolerance = {precision: float(value) for precision, value in case["tolerance"].items()}
    calls = [parse_call(call, inputs, results["output"].shape) for call in case.get("same_bits", [])]
    return Case(operation, case["name"], str(case.get("says", "")), inputs, results, tolerance, faults, calls)


def parse_call(call: Dict[str, Any], inputs: Dict[str, Any], shape: Tuple[int, ...]) -> Dict[str, Any]:
    """A further call: all its inputs, and the head and query in the first output for each row of its own."""
    places = [[h, i] for h in range(shape[0]) for i in range(shape[1])]
    rows = call.get("rows", places)
    if not isinstance(call.get("inputs"), dict) or any(row not in places for row in rows):
        raise ValueError("one of its `same_bits` has no `inputs`, or `rows` beyond the output")
    return {"inputs": {**inputs, **call["inputs"]}, "rows": rows}


def read_json(path: pathlib.Path) -> Dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        found = value.get("version") if isinstance(value, dict) else None
        raise ValueError(f"{path.name}: version {found!r}, and this program reads version {VERSION}")
    return value


def read_file(path: pathlib.Path, suite: Suite) -> None:
    value = read_json(path)
    if path.name == "faults.json":
        suite.faults.update({k: v for k, v in value.get("faults", {}).items() if isinstance(v, dict)})
        suite.groups = value.get("groups", []) if isinstance(value.get("groups"), list) else []
        return
    operation = value.get("operation")
    if operation not in OPERATIONS or not isinstance(value.get("cases"), list):
        raise ValueError(f"{path.name}: the operation {operation!r} is unknown, or there is no list of cases")
    for position, case in enumerate(value["cases"]):
        name = case.get("name", position + 1) if isinstance(case, dict) else position + 1
        try:
            suite.cases.append(parse_case(operation, case if isinstance(case, dict) else {}))
        except (ValueError, TypeError, AttributeError) as error:
            suite.unread.append(f"{path.name}, case {name}: {error}")


def read_suite(folder: pathlib.Path) -> Suite:
    """All cases that can be read. What can't be read is named, and the rest is still there."""
    suite = Suite([], {}, [])
    for path in sorted(folder.glob("*.json")):
        try:
            read_file(path, suite)
        except (ValueError, AttributeError) as error:
            suite.unread.append(str(error))
    return suite


# ------------------------------------------------------------------------------------ candidates

def where(error: BaseException, file: str) -> str:
    """An exception in one line, with the place in the candidate's file that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if os.path.basename(f.filename) == file]
    own = own or [f for f in frames if f.filename != __file__]
    place = f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
    message = textwrap.shorten(str(error), 100)
    return type(error).__name__ + (f": {message}" if message else "") + place


class Python:
    """A candidate that is a function of Python for each operation."""

    def __init__(self, functions: Dict[str, Callable], framework: str, precision: str, name: str):
        if framework not in FRAMEWORKS:
            raise Mistake(f"The framework {framework!r} is unknown: numpy, torch or jax.")
        try:
            self.library = importlib.import_module("jax.numpy" if framework == "jax" else framework)
        except ImportError:
            raise Mistake(f"{FRAMEWORKS[framework]} isn't installed: the candidate asks for it.") from None
        self.functions, self.framework, self.name = functions, framework, name
        self.same_bits = False
        version = importlib.import_module(framework).__version__.split("+")[0]
        self.versions = {"python": platform.python_version(), FRAMEWORKS[framework]: version}
        if framework == "jax":
            importlib.import_module("jax").config.update("jax_enable_x64", precision == "f64")
        if not hasattr(self.library, PRECISIONS[precision]):
            raise Mistake(f"{FRAMEWORKS[framework]} has no {PRECISIONS[precision]}.")
        self.type = getattr(self.library, PRECISIONS[precision])

    def make(self, value: Any, kind: Any) -> Any:
        """The framework's array from nested lists."""
        if self.framework == "torch":
            return self.library.tensor(value, dtype=kind)
        return self.library.asarray(value, dtype=kind)

    def numbers(self, value: Any) -> Any:
        parsed = array(value, "input")
        return self.make(nested(parsed.numbers, parsed.shape), self.type)

    def inputs(self, given: Dict[str, Any]) -> Dict[str, Any]:
        made = dict(given)
        for name, value in given.items():
            if name in NUMBERS:
                made[name] = self.numbers(value)
            elif name in ("outputs", "log_sum_exps"):
                made[name] = [self.numbers(part) for part in value]
            elif name == "positions":
                made[name] = self.make(value, self.library.int64 if self.framework != "jax" else int)
            elif name == "mask":
                made[name] = self.make(value, bool if self.framework != "torch" else self.library.bool)
            elif name == "chunks":
                made[name] = [{key: self.numbers(part) for key, part in chunk.items()} for chunk in value]
        return made

    def answer(self, case: Case) -> Dict[str, Array]:
        derived = case.operation == "attention_gradients" and case.operation not in self.functions
        derived = derived and self.framework != "numpy" and "attention" in self.functions
        function = self.functions.get("attention" if derived else case.operation)
        if function is None:
            raise Unsupported(f"it has no `{case.operation}`")
        given = parameters(function, case, derived)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.seed()
                inputs = self.inputs(given)
                result = self.differentiate(function, inputs) if derived else function(**inputs)
                return self.results(result, case)
        except NotImplementedError as error:
            raise Unsupported(str(error) or "it says so") from None
        except (Broken, KeyboardInterrupt):
            raise
        except BaseException as error:  # Also SystemExit: a candidate must not end the report.
            raise Broken(where(error, self.name)) from None

    def seed(self) -> None:
        if self.framework == "torch":
            self.library.manual_seed(0)
        elif self.framework == "numpy":
            self.library.random.seed(0)

    def differentiate(self, function: Callable, inputs: Dict[str, Any]) -> Tuple:
        """The output and gradients of a candidate's `attention`, by its framework."""
        d_output = inputs.pop("d_output")
        leaves = [inputs.pop(name) for name in ("q", "k", "v")]

        def output(q: Any, k: Any, v: Any) -> Any:
            result = function(q=q, k=k, v=v, **inputs)
            return result[0] if isinstance(result, tuple) else result

        if self.framework == "jax":
            value, pull = importlib.import_module("jax").vjp(output, *leaves)
            return (value, *pull(d_output))
        for leaf in leaves:
            leaf.requires_grad_(True)
        value = output(*leaves)
        gradients = self.library.autograd.grad(value, leaves, d_output, allow_unused=True)
        return (value, *(leaf * 0 if grad is None else grad for leaf, grad in zip(leaves, gradients)))

    def results(self, result: Any, case: Case) -> Dict[str, Array]:
        together = isinstance(result, dict) or isinstance(result, list) and any(hasattr(x, "shape") for x in result)
        if together:
            names = ", ".join(OPERATIONS[case.operation][2])
            raise Broken(f"it returned a {type(result).__name__}: results come as a tuple ({names})")
        values = result if isinstance(result, tuple) else (result,)
        named = zip(OPERATIONS[case.operation][2], values)
        return {name: self.compared(name, value) for name, value in named if name in case.results}

    def compared(self, name: str, value: Any) -> Array:
        if value is None:
            raise Broken(f"`{name}` is None")
        if self.framework == "torch":
            value = self.library.as_tensor(value).detach().cpu()
            wrong = value.is_complex() or value.dtype == self.library.bool
        else:
            value = importlib.import_module("numpy").asarray(value)
            wrong = value.dtype.kind in "cbOSUmM"
        kind = str(value.dtype).replace("torch.", "")
        if wrong:
            raise Broken(f"`{name}` holds {kind}, and not numbers")
        doubles = value.double() if self.framework == "torch" else value.astype("float64")
        return Array(tuple(value.shape), doubles.reshape(-1).tolist(), kind)


def parameters(function: Callable, case: Case, derived: bool) -> Dict[str, Any]:
    """The inputs to call a function with. One that has no parameter for an input can't do that case."""
    required, optional, _ = OPERATIONS[case.operation]
    given = {k: v for k, v in case.inputs.items() if k in required or v != optional[k]}
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return given
    for name, default in optional.items():  # A parameter without a default gets the suite's.
        if name not in given and name in known and known[name].default is inspect.Parameter.empty:
            given[name] = default
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return given
    for name in [n for n in given if n not in known and not (derived and n == "d_output")]:
        if name in required:
            raise Broken(f"`{case.operation}` has no parameter `{name}`, and arguments come by name")
        raise Unsupported(f"`{case.operation}` has no parameter `{name}`")
    return given


class Command:
    """A candidate that is a program: a line of JSON in, a line of JSON out."""

    def __init__(self, command: str, precision: str):
        self.words, self.precision = shlex.split(command, posix=os.name != "nt"), precision
        if not self.words or shutil.which(self.words[0]) is None:
            raise Mistake(f"The command {command!r} doesn't exist, or isn't a program.")
        self.name = " ".join(os.path.basename(word) for word in self.words)
        self.versions: Dict[str, str] = {}
        self.process: Any = None
        self.failures = 0  # In a row: no answer in time, or none that can be read.

    def answer(self, case: Case) -> Dict[str, Array]:
        self.give_up_after_three()
        question = {"operation": case.operation, "precision": self.precision, "inputs": case.inputs}
        line = self.exchange(json.dumps(question))
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError
        except ValueError:
            self.stop()  # Its next line may answer this question.
            self.failures += 1
            raise Broken(f"it printed what isn't a JSON object: {textwrap.shorten(line, 60)!r}") from None
        self.failures = 0
        if "unsupported" in answer:
            raise Unsupported(str(answer["unsupported"]))
        if "error" in answer:
            raise Broken("its error: " + textwrap.shorten(str(answer["error"]), 160))
        try:
            return parse_results(dict(answer["results"]), list(case.results))
        except (KeyError, TypeError):
            raise Broken("its answer has no `results`, no `unsupported` and no `error`") from None
        except ValueError as error:
            raise Broken(str(error)) from None

    def give_up_after_three(self) -> None:
        if self.failures >= 3:
            raise Broken("not asked: the program gave no answer three times in a row")

    def start(self) -> None:
        self.complaints, pipe = tempfile.TemporaryFile(), subprocess.PIPE
        try:
            self.process = subprocess.Popen(self.words, stdin=pipe, stdout=pipe, stderr=self.complaints)
        except OSError as error:
            raise Mistake(f"The command can't be started: {error.strerror}.") from None

    def exchange(self, question: str) -> str:
        """Sends a line and waits for one, in a thread, since either may block for ever."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        answers: "queue.Queue[bytes]" = queue.Queue()
        threading.Thread(target=self.talk, args=(self.process, question, answers), daemon=True).start()
        seconds = self.patience()
        try:
            line = answers.get(timeout=seconds).decode("utf-8", "replace")
        except queue.Empty:
            self.stop()
            self.failures += 1
            raise Broken(f"the program was silent for {seconds:g} seconds") from None
        if not line:
            raise Broken(self.ended())
        return line

    def patience(self) -> float:
        return SILENCE

    @staticmethod
    def talk(process: Any, question: str, answers: "queue.Queue[bytes]") -> None:
        try:
            process.stdin.write(question.encode() + b"\n")
            process.stdin.flush()
            answers.put(process.stdout.readline())
        except (OSError, ValueError):
            answers.put(b"")

    def ended(self) -> str:
        """Why a program gave no line: its exit status, and the last thing that it complained of."""
        try:
            status = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            status = "none: it closed its output"
        self.stop()
        lines = self.complaint().strip().splitlines()
        last = f": {textwrap.shorten(lines[-1], 120)}" if lines else ""
        return f"the program ended with status {status}{last}"

    def complaint(self) -> str:
        self.complaints.seek(0)
        return self.complaints.read().decode("utf-8", "replace")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


class File(Command):
    """A file in Python, in a process of its own: it may hang or end the process, and the report goes on.

    The process is this program with `--answer`. It begins with a line about itself. What the candidate prints is seen.
    """

    def __init__(self, path: str, precision: Optional[str]):
        self.words = [sys.executable, __file__, path, "--answer"]
        self.words += ["--precision", precision] if precision else []
        self.process, self.failures = None, 0
        self.start()

    def start(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.words, stdin=pipe, stdout=pipe)
        about: "queue.Queue[bytes]" = queue.Queue()
        threading.Thread(target=lambda: about.put(self.process.stdout.readline()), daemon=True).start()
        try:
            told = json.loads(about.get(timeout=PATIENCE))
        except queue.Empty:
            self.stop()
            raise Mistake(f"{os.path.basename(self.words[2])} wasn't loaded within {PATIENCE:g} seconds.") from None
        except ValueError:
            raise Mistake(f"{os.path.basename(self.words[2])} can't be loaded: {self.ended()}.") from None
        if "mistake" in told:
            raise Mistake(told["mistake"])
        self.name, self.versions, self.precision = told["name"], told["versions"], told["precision"]
        self.same_bits = told["same_bits"]

    def patience(self) -> float:
        return PATIENCE

    def complaint(self) -> str:
        return ""  # It was seen.

    def answer(self, case: Case) -> Dict[str, Array]:
        self.give_up_after_three()
        question = {"operation": case.operation, "inputs": case.inputs, "results": list(case.results)}
        told = json.loads(self.exchange(json.dumps(question)))
        self.failures = 0
        if "unsupported" in told:
            raise Unsupported(told["unsupported"])
        if "broken" in told:
            raise Broken(told["broken"])
        results = told["results"].items()
        return {name: Array(tuple(shape), [float(n) for n in numbers], kind) for name, (shape, numbers, kind) in results}


def answers(path: str, precision: Optional[str]) -> int:
    """Answers the questions of `File`, a line each, until there are no more."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # What the candidate prints isn't an answer.

    def tell(told: Dict[str, Any]) -> None:
        out.write(json.dumps(told) + "\n")
        out.flush()

    try:
        candidate, precision = load(path, precision)
        about = {"name": candidate.name, "versions": candidate.versions, "same_bits": candidate.same_bits}
        tell({**about, "precision": precision})
        for line in sys.stdin:
            question = json.loads(line)
            results = {name: Array((), []) for name in question["results"]}
            case = Case(question["operation"], "", "", question["inputs"], results, {}, {})
            try:
                found = candidate.answer(case).items()
                tell({"results": {name: [a.shape, [exact(n) for n in a.numbers], a.kind] for name, a in found}})
            except Unsupported as error:
                tell({"unsupported": str(error)})
            except Broken as error:
                tell({"broken": str(error)})
    except Mistake as error:
        tell({"mistake": str(error)})
    except KeyboardInterrupt:
        pass
    return 0


def exact(n: float) -> Any:
    return n if math.isfinite(n) else str(n)


def load(path: str, precision: Optional[str]) -> Tuple[Python, str]:
    """A candidate from a file. Everything that can be wrong with the file is told in a line."""
    file = pathlib.Path(path)
    if not file.is_file():
        raise Mistake(f"There is no file {path}.")
    sys.dont_write_bytecode = True
    sys.path.append(str(file.resolve().parent))
    loader = importlib.machinery.SourceFileLoader("candidate", str(file))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("candidate", loader))
    sys.modules["candidate"] = module  # Data classes look their module up.
    try:
        loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        raise Mistake(f"{file.name} needs {error.name}, which isn't installed.") from None
    except SyntaxError as error:
        name = os.path.basename(error.filename or file.name)
        raise Mistake(f"{name} has a syntax error in line {error.lineno}: {error.msg}.") from None
    except BaseException as error:
        raise Mistake(f"{file.name} can't be loaded. {where(error, file.name)}") from None
    functions = {name: getattr(module, name) for name in OPERATIONS if callable(getattr(module, name, None))}
    if not functions:
        raise Mistake(f"{file.name} has no function named {', '.join(OPERATIONS)}.")
    precision = precision or getattr(module, "precision", "f64")
    check_precision(precision)
    candidate = Python(functions, getattr(module, "framework", "numpy"), precision, file.name)
    candidate.same_bits = bool(getattr(module, "same_bits", False))
    return candidate, precision


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise Mistake(f"The precision {precision!r} is unknown: {', '.join(PRECISIONS)}.")


# -------------------------------------------------------------------------------------- verdicts

@dataclasses.dataclass
class Outcome:
    """What became of a case: passed, fault, wrong, broken, unsupported, or untried in this precision."""

    case: Case
    verdict: str
    why: str = ""
    came: Dict[str, Array] = dataclasses.field(default_factory=dict)
    off: float = 0.0
    matches: List[str] = dataclasses.field(default_factory=list)  # Faults whose results these are.
    fault: str = ""  # The fault that the report blames, one of the matches.
    like: str = ""  # One of the matches, where too much speaks against each to blame it.
    bits: Optional[str] = None  # Where further calls give other bits than the first one, or "" if they don't.

    @property
    def failed(self) -> bool:
        return self.verdict in ("fault", "wrong", "broken")


@dataclasses.dataclass
class Found:
    """A fault of the candidate: in how many of the cases that tell it apart, and what else it may be."""

    fault: str
    shown: int
    of: int
    alike: List[str]


def judge(candidate: Any, case: Case, precision: str, same_bits: bool) -> Outcome:
    tolerance = case.tolerance.get(precision)
    if tolerance is None:
        return Outcome(case, "untried", f"not for {precision}")
    try:
        came = candidate.answer(case)
    except Unsupported as error:
        return Outcome(case, "unsupported", str(error))
    except Broken as error:
        return Outcome(case, "broken", str(error))
    if "output" not in came:
        return Outcome(case, "broken", "it returned no `output`")
    off = max(distance(came[name], case.results[name]) for name in came)
    if off <= tolerance:
        bits = other_bits(candidate, case, came["output"], tolerance) if case.same_bits else None
        if bits and same_bits:
            alone = [fault for fault, wrong in case.faults.items() if not wrong]
            return Outcome(case, "fault" if alone else "wrong", bits, came, 0.0, alone, bits=bits)
        return Outcome(case, "passed", came=came, bits=bits)
    matches = matching(case, came, tolerance)
    return Outcome(case, "fault" if matches else "wrong", difference(case, came, off, precision), came, off, matches)


def other_bits(candidate: Any, case: Case, first: Array, tolerance: float) -> Optional[str]:
    """Where an output has other bits than the first one. Empty: nowhere. None: a call wasn't answered."""
    size = first.shape[2]
    for call in case.same_bits:
        try:
            output = candidate.answer(dataclasses.replace(case, inputs=call["inputs"]))["output"]
        except (KeyError, Unsupported, Broken):
            return None
        if len(output.numbers) != size * len(call["rows"]):
            return f"`output` has the shape {output.shape} in a further call"
        for row, (h, i) in enumerate(call["rows"]):
            for c in range(size):
                numbers = first.numbers[(h * first.shape[1] + i) * size + c], output.numbers[row * size + c]
                if repr(numbers[0]) != repr(numbers[1]):
                    is_near = abs(numbers[0] - numbers[1]) <= tolerance * max(1, abs(numbers[0]))
                    more = "" if is_near else ", which is more than rounding"
                    return f"`output` at {[h, i, c]} is {numbers[0]!r}, and then {numbers[1]!r}{more}"
    return ""


def matching(case: Case, came: Dict[str, Array], tolerance: float) -> List[str]:
    """The faults whose results these are. If there are none, those that have the same output."""
    for names in (list(came), ["output"]):
        matches = [
            fault for fault, wrong in case.faults.items()
            if case.tells_apart(fault, names, tolerance)
            and all(distance(came[n], wrong.get(n, case.results[n])) <= tolerance for n in names)
        ]
        if matches:
            return matches
    return []


def difference(case: Case, came: Dict[str, Array], off: float, precision: str) -> str:
    for name, value in came.items():
        if value.shape != case.results[name].shape:
            return f"`{name}` has the shape {value.shape}, and {case.results[name].shape} is right"
    kinds = {value.kind for value in came.values() if value.kind not in ("", PRECISIONS[precision])}
    note = f"; it returned {kinds.pop()} for {PRECISIONS[precision]}" if kinds else ""
    if not math.isfinite(off):
        return "NaN or infinite where it shouldn't be, or the reverse" + note
    return f"off by {off:.1e}{note}"


def blame(outcomes: List[Outcome], precision: str, same_bits: bool) -> List[Found]:
    """The fewest faults that explain the wrong results that some fault gives.

    The first is the one that explains most cases, and isn't contradicted by cases that pass. Faults that together explain
    less than a quarter of the wrong results are there by coincidence, so none is blamed then.
    """
    told: Dict[str, List[Outcome]] = {}
    for outcome in outcomes:
        for fault in outcome.case.faults if outcome.came else []:
            of_bits = same_bits and outcome.bits is not None and not outcome.case.faults[fault]
            if of_bits or outcome.case.tells_apart(fault, list(outcome.came), outcome.case.tolerance[precision]):
                told.setdefault(fault, []).append(outcome)
    found = []
    shares = {f: sum(f in o.matches for o in told[f]) / len(told[f]) for f in told}
    for outcome in outcomes:
        outcome.like = max(outcome.matches, key=lambda f: shares[f], default="")
    likely = [f for f in told if shown_by_most(f, told[f])]
    while True:
        open_cases = {f: [o for o in told[f] if f in o.matches and not o.fault] for f in likely}
        scores = {f: len(open_cases[f]) * shares[f] for f in likely}
        best = max(scores, key=lambda f: scores[f], default=None)
        if best is None or scores[best] == 0:
            break
        alike = [f for f in likely if f != best and scores[f] == scores[best] and open_cases[f] == open_cases[best]]
        found.append(Found(best, sum(best in o.matches for o in told[best]), len(told[best]), alike))
        for outcome in open_cases[best]:
            outcome.fault, outcome.like = best, ""
    wrong = [o for o in outcomes if o.verdict in ("fault", "wrong")]
    if 4 * sum(bool(o.fault) for o in wrong) < len(wrong):
        found = []
        for outcome in wrong:
            outcome.fault, outcome.like = "", outcome.fault or outcome.like
    for outcome in wrong:
        outcome.verdict = "fault" if outcome.fault else "wrong"
        if outcome.like:
            shown = sum(outcome.like in o.matches for o in told[outcome.like])
            outcome.why += f"; looks like {outcome.like} ({shown} of {len(told[outcome.like])})"
    return found


def shown_by_most(fault: str, told: List[Outcome]) -> bool:
    """Whether in some operation, since each may have an attention of its own, most cases that would show a fault show it.

    A case that has the results of another fault doesn't count.
    """
    votes: Dict[str, List[bool]] = {}
    for outcome in told:
        if fault in outcome.matches or not outcome.matches:
            votes.setdefault(outcome.case.operation, []).append(fault in outcome.matches)
    return any(2 * sum(of_operation) > len(of_operation) for of_operation in votes.values())


# ---------------------------------------------------------------------------------------- report

def wrap(text: str, first: str, others: str) -> List[str]:
    """Short lines, with one indent for the first of them and one for the others."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


@dataclasses.dataclass
class Report:
    candidate: str
    versions: Dict[str, str]
    precision: str
    suite: Suite
    outcomes: List[Outcome]
    same_bits: bool = False  # A case in which further calls give other bits fails.
    everything: bool = False  # Prints each failed case in full, and not the first few of a fault.

    def __post_init__(self) -> None:
        self.found = blame(self.outcomes, self.precision, self.same_bits)

    @property
    def faults(self) -> List[str]:
        return [found.fault for found in self.found]

    @property
    def counts(self) -> Dict[str, int]:
        verdicts = ("passed", "fault", "wrong", "broken", "unsupported", "untried")
        each = {verdict: sum(o.verdict == verdict for o in self.outcomes) for verdict in verdicts}
        return {"cases": len(self.outcomes), **each}

    def passes_but_for(self, *faults: str) -> bool:
        """True if each case that failed gives what one of these faults gives: choices of yours, say."""
        explained = all(set(o.matches) & set(faults) for o in self.outcomes if o.failed)
        return explained and not self.suite.unread and self.counts["passed"] > 0

    @property
    def status(self) -> int:
        if any(o.failed for o in self.outcomes):
            return 1
        return 2 if self.suite.unread or not self.counts["passed"] else 0

    def __str__(self) -> str:
        count = self.counts
        first = f"{count['passed']} of {count['cases']} cases pass, {count['unsupported']} unsupported"
        first += f", {count['untried']} not for {self.precision}" if count["untried"] else ""
        wrong = count["wrong"] + count["broken"]
        first += f"; faults found: {len(self.found)}" + (f"; failed otherwise: {wrong}" if wrong else "")
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [first, f"{self.candidate}, {self.precision}" + (f" ({versions})" if versions else ""), ""]
        lines += [line for bad in self.suite.unread for line in wrap(f"Not read: {bad}", "", "  ")]
        lines += [""] if self.suite.unread else []
        tried = any(o.failed or o.verdict == "passed" for o in self.outcomes)
        lines += [] if tried else ["No case was tried, so this says nothing about the candidate.", ""]
        lines += self.table()
        for found in self.found:
            lines += [""] + self.told(found)
        for why, outcomes in self.otherwise():
            lines += ["", *wrap(why, "", "  ")]
            for outcome in outcomes if self.everything else outcomes[:3]:
                lines += self.case(outcome)
            lines += self.rest(outcomes)
        kept = [o for o in self.outcomes if o.bits is not None]
        lines += ["", "The same bits" + ("" if self.same_bits else " (other ones are no fault without --same-bits)")] if kept else []
        for outcome in kept:
            lines += wrap(f"{outcome.case.name}: " + (f"no. {outcome.bits}" if outcome.bits else "yes"), "  - ", "    ")
        return "\n".join(lines)

    def table(self) -> List[str]:
        groups: Dict[int, List[Outcome]] = {}
        for outcome in self.outcomes:
            named = [f for f, wrong in outcome.case.faults.items() if wrong or self.same_bits]
            for group in {self.suite.number_of(f) for f in named} or {0}:
                groups.setdefault(group, []).append(outcome)
        lines = []
        for group in sorted(groups, key=lambda g: (g == 0, g)):
            words = f"{group or '':>2}  {self.suite.about(group):<40}  "
            lines += wrap(self.verdict(group, groups[group]), words, " " * len(words))
        return lines

    def verdict(self, group: int, outcomes: List[Outcome]) -> str:
        """The words for a group. Cases that fail by another group's fault say nothing about this one."""
        others = sorted({self.suite.number_of(o.fault) for o in outcomes if o.fault})
        tried = [o for o in outcomes if o.verdict not in ("unsupported", "untried")]
        own = [o for o in tried if not o.fault or self.suite.number_of(o.fault) == group]
        found = [f for f in self.found if self.suite.number_of(f.fault) == group]
        parts = [f"HAS IT: {f.fault} ({f.shown} of {f.of})" for f in found]
        if own and not parts:
            parts = [f"passed {sum(o.verdict == 'passed' for o in own)} of {len(own)}"]
        wrong = [o for o in own if o.verdict == "wrong"]
        if wrong:
            off = max(o.off for o in wrong)
            parts.append(f"{len(wrong)} wrong otherwise" + (f" (by {off:.1g})" if math.isfinite(off) else ""))
        broken = sum(o.verdict == "broken" for o in own)
        parts += [f"no result in {broken}"] if broken else []
        if not own and others:
            parts.append(f"can't tell until {', '.join(map(str, others))} is fixed")
        for verdict, words in (("unsupported", "unsupported"), ("untried", f"not for {self.precision}")):
            left = sum(o.verdict == verdict for o in outcomes)
            parts += [f"{left} {words}" if tried else words] if left else []
        return "; ".join(parts)

    def told(self, found: Found) -> List[str]:
        """The words of a fault, once, and the cases that show it."""
        about = self.suite.faults.get(found.fault, {})
        number = about.get("number", "")
        lines = [f"Group {number}, {found.fault}: in {found.shown} of {found.of} cases that would show it"]
        lines += wrap(str(about.get("words", "(faults.json has no words for it)")), "  ", "  ")
        lines += [f"  Results can't tell it from: {', '.join(found.alike)}"] if found.alike else []
        lines += [f"  Reported in: {about['source']}"] if "source" in about else []
        blamed = [o for o in self.outcomes if o.fault == found.fault]
        blamed.sort(key=lambda o: sum(len(a.numbers) for a in o.came.values()))
        for outcome in blamed if self.everything else blamed[:3]:
            lines += self.case(outcome)
        return lines + self.rest(blamed)

    def rest(self, outcomes: List[Outcome]) -> List[str]:
        names = [] if self.everything else [o.case.name for o in outcomes[3:]]
        return wrap(f"Also (--all prints them): {', '.join(names)}", "  - ", "    ") if names else []

    def otherwise(self) -> List[Tuple[str, List[Outcome]]]:
        """Failed cases that no fault explains. Those without a result are grouped by what went wrong."""
        wrong = [o for o in self.outcomes if o.verdict == "wrong"]
        groups = [("Wrong, and not by any one fault that these cases know", wrong)] if wrong else []
        broken: Dict[str, List[Outcome]] = {}
        for outcome in self.outcomes:
            if outcome.verdict == "broken":  # Shapes in a message differ from case to case.
                broken.setdefault(re.sub(r"[\d\W]+", " ", outcome.why), []).append(outcome)
        return groups + [("No result: " + same[0].why, same) for same in broken.values()]

    def case(self, outcome: Outcome) -> List[str]:
        case = outcome.case
        lines = wrap(f"{case.operation}: {case.name}. {case.says}", "  - ", "    ")
        for name, value in outcome.came.items():
            right = case.results[name]
            if not distance(value, right) <= case.tolerance[self.precision]:
                came = f"{'got':>{len(name) + 10}}"
                lines += [f"      {name}: expected {show(right, value)}", f"      {came} {show(value, right)}"]
        if outcome.verdict == "wrong":
            faults = ", ".join(case.faults) or "none"
            lines += wrap(f"{outcome.why}. Faults that it tells apart: {faults}", "      ", "      ")
        return lines

    def as_json(self) -> str:
        """A report for machines, with a line for each case."""
        head = {
            "candidate": self.candidate, "versions": self.versions, "precision": self.precision,
            "counts": self.counts,
            "faults": [{**dataclasses.asdict(f), "number": self.suite.number_of(f.fault)} for f in self.found],
            "unread": self.suite.unread,
        }
        lines = []
        for outcome in self.outcomes:
            line = {"operation": outcome.case.operation, "name": outcome.case.name, "verdict": outcome.verdict}
            line.update({"fault": outcome.fault} if outcome.fault else {})
            line.update({"looks_like": outcome.like} if outcome.like else {})
            line.update({"why": outcome.why} if outcome.why else {})
            line.update({"same_bits": not outcome.bits} if outcome.bits is not None else {})
            lines.append("    " + json.dumps(line, ensure_ascii=False))
        body = json.dumps(head, indent=2, ensure_ascii=False)[:-2]
        return body + ',\n  "cases": [\n' + ",\n".join(lines) + "\n  ]\n}\n"

    def write(self, path: str) -> None:
        try:
            pathlib.Path(path).write_text(self.as_json(), encoding="utf-8")
        except OSError as error:
            raise Mistake(f"The report can't be written to {path}: {error.strerror}.") from None


def report(candidate: Any, precision: str, cases: Optional[str] = None, only: Optional[str] = None,
           same_bits: bool = False) -> Report:
    suite = read_suite(pathlib.Path(cases) if cases else pathlib.Path(__file__).resolve().parent / "cases")
    if not suite.cases:
        raise Mistake("\n".join(["No case can be read.", *suite.unread]))
    chosen = [case for case in suite.cases if only in (None, case.name, case.operation)]
    if not chosen:
        names = sorted({case.name for case in suite.cases} | {case.operation for case in suite.cases})
        near = ", ".join(difflib.get_close_matches(only, names, 3, 0.4))
        raise Mistake(f"No case is named {only!r}." + (f" Near it: {near}." if near else ""))
    outcomes = [judge(candidate, case, precision, same_bits) for case in chosen]
    return Report(candidate.name, candidate.versions, precision, suite, outcomes, same_bits)


def check(framework: str = "numpy", precision: str = "f64", cases: Optional[str] = None, only: Optional[str] = None,
          name: str = "your functions", same_bits: bool = False, **operations: Callable) -> Report:
    """Checks functions, each given by the name of its operation: `check(attention=my_attention)`."""
    check_precision(precision)
    for operation in operations:
        if operation not in OPERATIONS:
            raise TypeError(f"{operation!r} isn't an operation: {', '.join(OPERATIONS)}")
    if not operations:
        raise TypeError("no operation is given: check(attention=my_attention)")
    return report(Python(operations, framework, precision, name), precision, cases, only, same_bits)


def check_file(path: str, precision: Optional[str] = None, same_bits: bool = False, **choice: Any) -> Report:
    """Checks the functions of a file."""
    candidate = File(path, precision)
    try:
        return report(candidate, candidate.precision, same_bits=same_bits or candidate.same_bits, **choice)
    finally:
        candidate.stop()


def check_command(command: str, precision: str = "f64", **choice: Any) -> Report:
    """Checks a program that answers lines of JSON."""
    check_precision(precision)
    candidate = Command(command, precision)
    try:
        return report(candidate, precision, **choice)
    finally:
        candidate.stop()


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="check.py", description="Which of the known faults an attention has.")
    parser.add_argument("file", nargs="?", help="a file in Python with functions named like the operations")
    parser.add_argument("--command", help="instead of a file, a program that answers lines of JSON")
    parser.add_argument("--precision", help="f64, f32, bf16 or f16 (default: what the file says, or f64)")
    parser.add_argument("--only", metavar="NAME", help="one case, or the cases of one operation")
    parser.add_argument("--same-bits", action="store_true", help="fail cases in which further calls give other bits")
    parser.add_argument("--all", action="store_true", help="print all failed cases, and not three of each fault")
    parser.add_argument("--json", metavar="FILE", help="write a report for machines, too")
    parser.add_argument("--cases", metavar="FOLDER", help="the folder of cases (default: beside this program)")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)  # As the process of a `File`.
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if options.answer:
        return answers(options.file, options.precision)
    try:
        if (options.file is None) == (options.command is None):
            raise Mistake("Give a file in Python, or --command and a program: one of the two.")
        if options.json and not pathlib.Path(options.json).absolute().parent.is_dir():
            raise Mistake(f"The report can't be written to {options.json}: its folder doesn't exist.")
        choice = {"cases": options.cases, "only": options.only, "same_bits": options.same_bits}
        if options.command is not None:
            result = check_command(options.command, options.precision or "f64", **choice)
        else:
            result = check_file(options.file, options.precision, **choice)
        result.everything = options.all
        print(result)
        if options.json:
            result.write(options.json)
        return result.status
    except Mistake as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
    except BrokenPipeError:  # Whoever reads our output, as `head` does, has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2


if __name__ == "__main__":
    sys.exit(main())
