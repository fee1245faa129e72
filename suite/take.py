"""Takes the reports of all candidates in `candidates/` into `results/`, and their table into the README.

    python suite/take.py            # all that is installed here
    python suite/take.py pytorch    # one
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import check

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = ["numpy_right", "numpy_textbook", "pytorch", "pytorch_flex", "jax_nn"]
CANDLE = {"candle": "", "candle_flash": "flash", "candle_mistral": "mistral"}
CRATE = "attention"  # the book's own
NAMES = [CRATE] + PYTHON + list(CANDLE)


def take_program(name: str) -> check.Report:
    """What a program in Rust gets: that of the folder `candle`, or the one that answers with the book's crate."""
    if shutil.which("cargo") is None:
        raise check.Mistake("cargo isn't installed.")
    folder = HERE.parent / "crates" / "suite" if name == CRATE else HERE / "candidates" / "candle"
    cargo = ["--release", "--quiet", "--locked", "--manifest-path", str(folder / "Cargo.toml")]
    if subprocess.run(["cargo", "build", *cargo]).returncode != 0:
        raise check.Mistake("The program can't be built.")
    arguments = "--answer" if name == CRATE else CANDLE[name]
    report = check.check_command(" ".join(["cargo", "run", *cargo, "--", arguments]), "f64" if name == CRATE else "f32")
    report.candidate = name
    manifest = (HERE.parent / "crates" / "attention" if name == CRATE else folder) / "Cargo.toml"
    versions = re.findall(r'^(candle-\w+|version) = "=?(.+)"', manifest.read_text(), re.MULTILINE)
    report.versions = {CRATE if key == "version" and name == CRATE else key: value for key, value in versions if key != "version" or name == CRATE}
    return report


def table() -> str:
    """What the reports in `results/` say, a row for each."""
    rows = ["| candidate | precision | pass | fail | unsupported | faults |", "| :-- | :-- | --: | --: | --: | :-- |"]
    for name in NAMES:
        report = json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))
        counts = report["counts"]
        versions = [f"{key} {value}" for key, value in report["versions"].items() if key not in ("python", "candle-core")]
        otherwise = counts["wrong"] + counts["broken"]
        faults = ", ".join(fault["fault"] for fault in report["faults"]) or "none"
        faults += f"; {otherwise} fail otherwise" if otherwise else ""
        failed = counts["fault"] + otherwise
        rows.append(
            f"| `{name}` ({', '.join(versions)}) | {report['precision']} | {counts['passed']} | {failed} "
            f"| {counts['unsupported']} | {faults} |"
        )
    return "\n".join(rows)


def main() -> int:
    (HERE / "results").mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        try:
            path = str(HERE / "candidates" / f"{name}.py")
            report = check.check_file(path) if name in PYTHON else take_program(name)
        except check.Mistake as mistake:
            print(f"{name}: skipped. {mistake}")
            continue
        (HERE / "results" / f"{name}.json").write_text(report.as_json(), encoding="utf-8")
        print(f"{name}: {str(report).splitlines()[0]}")
    readme = HERE / "README.md"
    before, _, after = re.split(r"(?<=<!-- results -->\n)(.*?)(?=\n<!-- end -->)", readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    readme.write_text(before + table() + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
