"""Which planted faults would the tests of public projects have let pass?

    python others.py --checkouts DIR [--only SET] [--fault NAME] [--results results.json]

DIR holds an untouched checkout of each project, at the commit that sets.py names. For each fault a
child process puts attention with that fault in the place of the code under test (plant.py), at run
time, and runs the project's own tests.

- caught: at least one test goes red that is green without a fault.
- passed: all of them stay green.
- no_input: the code under test has no such thing (sets.py says which), so its author can't have the
  fault.

Tests that are red without a fault are left out of the comparison, and named.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback

import planted
import sets

KEPT = ("passed", "skipped", "xfailed")


class Recorder:
    """A plugin of pytest that keeps what became of each test."""

    def __init__(self):
        self.outcomes, self.why = {}, {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            if self.outcomes.get(report.nodeid) != "failed":
                self.outcomes[report.nodeid] = report.outcome
            if report.outcome == "failed":
                crash = getattr(report.longrepr, "reprcrash", None)
                self.why[report.nodeid] = (crash.message if crash else str(report.longrepr))[:200]

    def pytest_collectreport(self, report):
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
            self.why[report.nodeid] = str(report.longrepr)[-300:]


def run_here(chosen, folder, fault):
    """Runs the tests of a set in this process, with a fault. The outcome of each test."""
    import pytest
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    os.chdir(folder / chosen.folder)
    sys.path[:0] = [str(folder / chosen.folder / part) for part in chosen.path]
    planted.FAULT = None
    torch.manual_seed(0)
    chosen.plant(folder)
    planted.FAULT = fault
    recorder = Recorder()
    arguments = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=short", *chosen.arguments]
    if chosen.stops and fault:
        arguments.append("-x")
    pytest.main(arguments + chosen.tests, plugins=[recorder])
    return {"outcomes": recorder.outcomes, "why": recorder.why}


def run(chosen, folder, fault, loud=False):
    """The same in a child, since modules keep what was patched."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = pathlib.Path(scratch) / "answer.json"
        child = os.fork()
        if child == 0:
            try:
                quiet = (
                    contextlib.nullcontext() if loud else contextlib.redirect_stdout(io.StringIO())
                )
                with quiet:
                    told = run_here(chosen, folder, fault)
            except BaseException:
                told = {"outcomes": {}, "why": {"": traceback.format_exc()}}
            answer.write_text(json.dumps(told))
            os._exit(0)
        os.waitpid(child, 0)
        return (
            json.loads(answer.read_text())
            if answer.exists()
            else {"outcomes": {}, "why": {"": "the child died"}}
        )


def green(told):
    return {test for test, outcome in told["outcomes"].items() if outcome == "passed"}


def judge(chosen, folder, faults, log):
    """A row of results.json: what a set of tests makes of each fault."""
    first = run(chosen, folder, None)
    base = green(first)
    red = {
        test: first["why"].get(test, "")
        for test, outcome in first["outcomes"].items()
        if outcome == "failed"
    }
    log(
        f"{chosen.name}: {len(base)} tests green, {len(red)} red, without a fault",
        *red.items(),
        first["why"].get("", ""),
    )
    row = chosen.about() | {
        "tests": len(base),
        "left_out": sorted(set(red) | set(chosen.left_out)),
        "faults": {},
        "caught_by": {},
        "no_input_because": {},
    }
    for fault in faults:
        missing = chosen.missing(fault)
        if missing:
            row["faults"][fault], row["no_input_because"][fault] = "no_input", missing
            continue
        began = time.time()
        told = run(chosen, folder, fault)
        lost = sorted(test for test in base if told["outcomes"].get(test) == "failed") or sorted(
            base - green(told)
        )
        row["faults"][fault] = "caught" if lost else "passed"
        if lost:
            row["caught_by"][fault] = lost
        seconds = time.time() - began
        log(f"  {fault}: {row['faults'][fault]} {len(lost)} of {len(base)}  {seconds:.1f} s")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--checkouts",
        required=True,
        type=pathlib.Path,
        help="a folder with a checkout of each project",
    )
    parser.add_argument(
        "--faults",
        type=pathlib.Path,
        help="the suite's faults.json (default: the names in sets.py)",
    )
    parser.add_argument("--only", action="append", help="a set of tests, by its name")
    parser.add_argument(
        "--fault", action="append", help="a fault, by its name; nothing is written then"
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results.json"))
    options = parser.parse_args()
    faults = sorted(sets.NEEDS)
    if options.faults:
        assert faults == sorted(json.loads(options.faults.read_text())["faults"]), (
            "other faults than the suite's"
        )
    folder = options.checkouts.resolve()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    for chosen in sets.SETS:
        if options.only and chosen.name not in options.only:
            continue
        if options.fault:
            for fault in options.fault:
                print(
                    json.dumps(
                        run(chosen, folder, None if fault == "none" else fault, loud=True), indent=1
                    )
                )
            continue
        where = options.results.resolve()
        results[chosen.name] = judge(
            chosen, folder, faults, lambda *words: print(*words, flush=True)
        )
        where.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
