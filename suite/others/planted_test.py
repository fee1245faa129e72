"""Holds planted.py to the suite: with a fault only cases that name it fail, at least two of them,
and each with that fault's results; without one none fails.

PYTHONPATH=suite python suite/others/planted_test.py
"""

import check
import planted
import sets


def complaints(fault):
    """What is wrong with the program that has this fault. Cases that ask for more than it has are
    unsupported, and don't count."""
    planted.FAULT = fault
    operations = {
        name: getattr(planted, name) for name in check.OPERATIONS if hasattr(planted, name)
    }
    report = check.check(framework="torch", precision="f64", **operations)
    failed = [outcome for outcome in report.outcomes if outcome.failed]
    wrong = [f"{o.case.name}: {o.verdict} {o.why}" for o in failed if fault not in o.matches]
    if fault and len(failed) < 2:
        wrong.append(f"{len(failed)} cases fail")
    return wrong


def main():
    wrong = {fault: complaints(fault) for fault in [None, *sets.NEEDS]}
    for fault, complaints_of in wrong.items():
        for complaint in complaints_of:
            print(f"{fault}: {complaint}")
    print(f"{len(sets.NEEDS)} faults, {sum(map(bool, wrong.values()))} not as the suite says")
    return any(wrong.values())


if __name__ == "__main__":
    raise SystemExit(main())
