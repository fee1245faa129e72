"""Tests of check.py: what it says of right and wrong candidates, and of mistakes in files.

    python -m unittest suite/test_check.py

SUITE_PLANTED, if it is set, is the program that answers with a planted fault when it gets `--fault NAME`, for example
SUITE_PLANTED="target/debug/suite --answer". Without it, and without PyTorch or JAX, the tests that need them skip.
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check  # noqa: E402
import take  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PLANTED = os.environ.get("SUITE_PLANTED")
TOLERANCE = {"f64": 1e-12, "f32": 1e-5}

RIGHT = """
    import numpy as np
    def attention(q, k, v, causal=False, mask=None):
        n_q, n_k = q.shape[1], k.shape[1]
        output = np.zeros((q.shape[0], n_q, v.shape[2]), q.dtype)
        for i in range(n_q):
            seen = np.arange(n_k) <= (i + n_k - n_q if causal else n_k)
            seen = seen if mask is None else seen & mask[i]
            if seen.any():
                e = np.exp(k[0, seen] @ q[0, i])
                output[0, i] = e / e.sum() @ v[0, seen]
        return output
"""
TOP_LEFT = """
    import numpy as np
    def attention(q, k, v, causal=False):
        e = np.exp(q @ k.transpose(0, 2, 1))
        e = np.tril(e) if causal else e
        return e / e.sum(axis=-1, keepdims=True) @ v
"""


def cases():
    """Three cases of attention. Each is small enough to check by hand."""
    zeros = [[[0]] * 2, [[0]] * 5]
    return [
        {"name": "cache", "says": "Two queries come after three keys of a cache.", "tolerance": TOLERANCE,
         "inputs": {"q": [zeros[0]], "k": [zeros[1]], "v": [[[0], [1], [2], [3], [4]]], "causal": True},
         "results": {"output": [[[1.5], [2]]]},
         "faults": [{"fault": "top-left", "results": {"output": [[[0], [0.5]]]}},
                    {"fault": "no-mask", "results": {"output": [[[2], [2]]]}}]},
        {"name": "hidden", "says": "The query may see nothing.", "tolerance": TOLERANCE,
         "inputs": {"q": [[[0]]], "k": [[[0], [0]]], "v": [[[1], [3]]], "mask": [[False, False]]},
         "results": {"output": [[[0]]], "log_sum_exp": [["-inf"]]},
         "faults": [{"fault": "nan-row", "results": {"output": [[["NaN"]]], "log_sum_exp": [["NaN"]]}}]},
        {"name": "plain", "says": "Two equal scores.", "tolerance": TOLERANCE,
         "inputs": {"q": [[[0]]], "k": [[[0], [0]]], "v": [[[1], [3]]]},
         "results": {"output": [[[2]]]}},
    ]


FAULTS = {
    "top-left": {"number": 3, "words": "The mask starts in the top left corner.", "source": "https://example.org/1"},
    "no-mask": {"number": 3, "words": "There is no mask."},
    "nan-row": {"number": 4, "words": "The empty row is NaN."},
}


class Folder(unittest.TestCase):
    """A folder with cases and candidates, and what check.py prints for them."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "cases").mkdir()
        self.write_cases(cases())
        self.write("cases/faults.json", json.dumps({"version": 1, "groups": ["", "", "the causal mask's corner"], "faults": FAULTS}))

    def tearDown(self):
        self.temporary.cleanup()

    def write(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return str(self.folder / name)

    def write_cases(self, list_of_cases, version=1):
        value = {"version": version, "operation": "attention", "cases": list_of_cases}
        self.write("cases/attention.json", json.dumps(value))

    def run_check(self, *arguments):
        """The exit status and everything that is printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                status = check.main([*arguments, "--cases", str(self.folder / "cases")])
            except SystemExit as end:
                status = end.code
        self.assertNotIn("Traceback", printed.getvalue())
        self.assertLessEqual(max(map(len, printed.getvalue().splitlines()), default=0), 200)
        return status, printed.getvalue()

    def check_text(self, text, *arguments):
        return self.run_check(self.write("candidate.py", text), *arguments)

    def check_program(self, text, *arguments):
        path = self.write("program.py", text)
        return self.run_check("--command", f"{sys.executable} {path}", *arguments)


class Verdicts(Folder):
    def test_right_candidate_passes(self):
        status, text = self.check_text(RIGHT)
        self.assertEqual(status, 0, text)
        self.assertTrue(text.startswith("3 of 3 cases pass, 0 unsupported; faults found: 0\n"), text)

    def test_fault_is_named_with_its_words_once(self):
        status, text = self.check_text(TOP_LEFT)
        self.assertEqual(status, 1)
        self.assertIn("1 of 3 cases pass, 1 unsupported; faults found: 1", text)
        self.assertIn("HAS IT: top-left (1 of 1)", text)
        self.assertEqual(text.count(FAULTS["top-left"]["words"]), 1)
        self.assertIn("https://example.org/1", text)
        self.assertIn("expected [[[1.5], [2]]]", text)
        self.assertIn("got [[[0], [0.5]]]", text)

    def test_lines_are_short(self):
        for line in self.check_text(TOP_LEFT)[1].splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_wrong_otherwise_says_how_far_and_what_is_told_apart(self):
        status, text = self.check_text(RIGHT.replace("return output", "return output + 0.25"))
        self.assertEqual(status, 1)
        self.assertIn("1 wrong otherwise (by 0.2)", text)
        self.assertIn("Faults that it tells apart: top-left, no-mask", text)

    def test_unsupported_counts_neither_way(self):
        status, text = self.check_text(RIGHT.replace(", mask=None", "").replace("mask is None", "True"))
        self.assertEqual(status, 0)
        self.assertIn("2 of 3 cases pass, 1 unsupported", text)

    def test_nothing_tried_is_no_success(self):
        refusing = "def attention(q, k, v):\n    raise NotImplementedError"
        for arguments in ([], ["--precision", "f16"]):
            status, text = self.check_text(refusing, *arguments)
            self.assertEqual(status, 2)
            self.assertIn("0 of 3 cases pass", text)
            self.assertIn("No case was tried", text)

    def test_one_fault_explains_what_a_narrower_one_explains_too(self):
        more = cases()
        second = dict(more[0], name="cache-again", faults=more[0]["faults"][:1])
        more[0]["faults"].append({"fault": "narrow", "results": {"output": [[[0], [0.5]]]}})
        self.write_cases([*more, second])
        report = check.check_file(self.write("candidate.py", TOP_LEFT), cases=str(self.folder / "cases"))
        self.assertEqual(report.faults, ["top-left"])
        self.assertEqual(report.found[0].alike, [])

    def test_faults_with_the_same_results_are_both_named(self):
        more = cases()
        more[0]["faults"].append({"fault": "twin", "results": {"output": [[[0], [0.5]]]}})
        self.write_cases(more)
        self.assertIn("Results can't tell it from: twin", self.check_text(TOP_LEFT)[1])

    def test_fault_contradicted_by_a_case_that_passes_is_no_twin(self):
        more = cases()
        more[0]["faults"].append({"fault": "twin", "results": {"output": [[[0], [0.5]]]}})
        more[2]["faults"] = [{"fault": "twin", "results": {"output": [[[3]]]}}]
        self.write_cases(more)
        self.assertNotIn("Results can't tell it from", self.check_text(TOP_LEFT)[1])

    def test_result_that_a_fault_does_not_list_is_the_right_one(self):
        more = cases()
        more[1]["faults"] = [
            {"fault": "whole", "results": {"output": [[["NaN"]]]}},
            {"fault": "nan-row", "results": {"output": [[["NaN"]]], "log_sum_exp": [["NaN"]]}},
        ]
        self.write_cases(more)
        for total, fault in (("-np.inf", "whole"), ("np.nan", "nan-row")):
            body = f"return np.full((1, 1, 1), np.nan), np.full((1, 1), {total})"
            text = f"import numpy as np\ndef attention(q, k, v, mask):\n    {body}"
            path = self.write("candidate.py", text)
            report = check.check_file(path, cases=str(self.folder / "cases"), only="hidden")
            self.assertEqual(report.faults, [fault])

    def test_output_of_a_fault_is_enough_where_nothing_fits_whole(self):
        body = "return np.full((1, 1, 1), np.nan), np.full((1, 1), -2e38)"
        text = self.check_text(f"import numpy as np\ndef attention(q, k, v, mask):\n    {body}", "--only", "hidden")[1]
        self.assertIn("HAS IT: nan-row", text)

    def test_fault_that_changes_a_missing_result_only_is_not_blamed(self):
        more = cases()
        more[1]["faults"] = [{"fault": "nan-row", "results": {"log_sum_exp": [["NaN"]]}}]
        self.write_cases(more)
        self.assertEqual(self.check_text(RIGHT)[0], 0)

    def test_tolerance_is_relative_above_one(self):
        more = cases()
        more[2]["inputs"]["v"] = [[[1e6], [3e6]]]
        more[2]["results"]["output"] = [[[2e6]]]
        self.write_cases(more)
        self.assertEqual(self.check_text(RIGHT.replace("return output", "return output * (1 + 1e-13)"))[0], 0)
        self.assertEqual(self.check_text(RIGHT.replace("return output", "return output * (1 + 1e-11)"))[0], 1)


class LooksLike(unittest.TestCase):
    """Programs with a fault that no case names. Some of their results are those of another fault."""

    def changed(self, *changes):
        """The report of the right candidate after these changes of its text."""
        text = (HERE / "candidates" / "numpy_right.py").read_text(encoding="utf-8")
        for old, new in changes:
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "candidate.py"
            path.write_text(text, encoding="utf-8")
            return check.check_file(str(path))

    def test_one_case_of_many_is_no_verdict(self):
        report = self.changed(("else visible & mask", "else visible | mask if causal else mask"))  # Mask or causal.
        self.assertEqual(report.faults, [], str(report))
        self.assertIn("faults found: 0; failed otherwise:", str(report))
        self.assertRegex(" ".join(str(report).split()), r"looks like mask-zero-scores \(1 of \d+\)")
        self.assertIn('"looks_like": "mask-zero-scores"', report.as_json())

    def test_more_failed_cases_against_than_for_is_no_verdict(self):
        keys_not_rotated = "rotate(q, positions, rotary), k"
        report = self.changed(("rotate(q, positions, rotary), rotate(k, positions, rotary)", keys_not_rotated))
        self.assertEqual(report.faults, [], str(report))
        self.assertIn("looks like position-of-the-chunk", str(report))

    def test_faults_that_leave_most_failed_cases_unexplained_are_no_verdicts(self):
        total = "exponentials.sum()"
        with_one = f"({total} + np.exp(-highest))"  # Softmax with 1 in the denominator.
        line = f"exponentials / {total}, highest + np.log({total})"
        report = self.changed((line, line.replace(total, with_one)))
        self.assertEqual(report.faults, [], str(report))
        self.assertGreater(report.counts["wrong"], 50)

    def test_one_draw_of_dropout_for_all_is_named(self):
        one = "np.random.RandomState(0).random((repeats, k.shape[1]))[:, seen]"
        report = self.changed(("np.random.random((repeats, seen.size))", one))
        self.assertEqual(report.faults, ["dropout-once"], str(report))

    def test_fault_of_one_operation_is_named(self):
        report = self.changed(("np.arange(start, start + q.shape[1])", "np.arange(q.shape[1])"))
        self.assertEqual(report.faults, ["position-of-the-chunk"], str(report))
        own = "causal=keys.shape[1] == q.shape[1], mask=mask"
        report = self.changed(("causal=True, mask=mask", own))
        self.assertEqual(report.faults, ["causal-forgotten-with-cache"], str(report))


class SameBits(Folder):
    BY_COMPANY = """
        import numpy as np
        def attention(q, k, v):
            e = np.exp(q @ k.transpose(0, 2, 1))
            return e / e.sum(-1, keepdims=True) @ v + (0 if q.shape[1] > 1 else 1e-15)
    """

    def setUp(self):
        super().setUp()
        both = {"q": [[[0], [0]]], "k": [[[0], [0]]], "v": [[[1], [3]]]}
        self.case = {
            "name": "bits", "says": "Two queries, and each alone.", "tolerance": TOLERANCE, "inputs": both,
            "same_bits": [{"inputs": {"q": [[[0]]]}, "rows": [[0, 0]]}, {"inputs": {"q": [[[0]]]}, "rows": [[0, 1]]}],
            "results": {"output": [[[2], [2]]]}, "faults": [{"fault": "by-company", "results": {}}],
        }
        self.write_cases([*cases(), self.case])
        faults = {**FAULTS, "by-company": {"number": 1, "words": "It depends on the company."}}
        self.write("cases/faults.json", json.dumps({"version": 1, "groups": ["bits"], "faults": faults}))

    def test_other_bits_are_no_fault(self):
        status, text = self.check_text(self.BY_COMPANY, "--only", "bits")
        self.assertEqual(status, 0, text)
        self.assertIn("(other ones are no fault without --same-bits)", text)
        self.assertIn("bits: no. `output` at [0, 0, 0] is 2.0, and then 2.000000000000001", text)
        self.assertNotIn(" 1  bits", text)

    def test_other_bits_are_a_fault_where_the_candidate_promises_the_same(self):
        for text, arguments in ((self.BY_COMPANY, ["--same-bits"]), ("same_bits = True" + self.BY_COMPANY.replace("\n        ", "\n"), [])):
            status, text = self.check_text(text, "--only", "bits", *arguments)
            self.assertEqual(status, 1, text)
            self.assertIn("HAS IT: by-company (1 of 1)", text)

    def test_same_bits(self):
        status, text = self.check_text(self.BY_COMPANY.replace("1e-15", "0"), "--only", "bits", "--same-bits")
        self.assertEqual(status, 0, text)
        self.assertIn("bits: yes", text)

    def test_further_call_that_is_wrong_is_told_from_rounding(self):
        wrong = self.BY_COMPANY.replace("1e-15", "0.5")
        self.assertIn("is 2.0, and then 2.5, which is more than rounding", self.check_text(wrong, "--only", "bits")[1])

    def test_further_call_without_an_answer_says_nothing(self):
        raises = self.BY_COMPANY.replace("e = ", "assert q.shape[1] > 1; e = ", 1)
        status, text = self.check_text(raises, "--only", "bits", "--same-bits")
        self.assertEqual(status, 0, text)
        self.assertNotIn("The same bits", text)

    def test_further_call_of_another_shape(self):
        wide = self.BY_COMPANY.replace("@ v + (0", "@ v + np.zeros((1, 2, 1)) + (0")
        self.assertIn("`output` has the shape (1, 2, 1) in a further call", self.check_text(wide, "--same-bits")[1])

    def test_malformed_calls(self):
        for call in ({"rows": [[0, 0]]}, {"inputs": {}, "rows": [[0, 2]]}):
            self.write_cases([*cases(), {**self.case, "same_bits": [call]}])
            self.assertIn("case bits: one of its `same_bits` has no `inputs`", self.check_text(RIGHT)[1])


class Choices(Folder):
    def test_only_one_case_or_operation(self):
        self.assertIn("1 of 1 cases pass", self.check_text(RIGHT, "--only", "plain")[1])
        self.assertIn("3 of 3 cases pass", self.check_text(RIGHT, "--only", "attention")[1])
        status, text = self.check_text(RIGHT, "--only", "plane")
        self.assertEqual(status, 2)
        self.assertIn("Near it: plain", text)

    def test_precision_that_a_case_lacks_is_not_tried(self):
        more = cases()
        more[2]["tolerance"] = {"f64": 1e-12}
        self.write_cases(more)
        self.assertIn("1 not for f32", self.check_text(RIGHT, "--precision", "f32")[1])

    def test_precision_of_the_file_and_its_arrays(self):
        text = 'precision = "f32"\n' + textwrap.dedent(RIGHT).replace("n_q, n_k =", "assert q.dtype == np.float32; n_q, n_k =")
        self.assertEqual(self.check_text(text)[0], 0)

    def test_unknown_precision_and_framework(self):
        for text, word in (('precision = "f80"', "f80"), ('framework = "abacus"', "abacus"), ('precision = "bf16"', "bfloat16")):
            status, printed = self.check_text(text + "\n" + textwrap.dedent(RIGHT))
            self.assertEqual(status, 2)
            self.assertIn(word, printed)

    def test_report_for_machines(self):
        target = self.folder / "report.json"
        self.check_text(TOP_LEFT, "--json", str(target))
        report = json.loads(target.read_text(encoding="utf-8"))
        self.assertEqual(report["counts"]["passed"], 1)
        self.assertEqual(report["faults"][0]["fault"], "top-left")
        self.assertEqual([case["verdict"] for case in report["cases"]], ["fault", "unsupported", "passed"])
        self.assertNotIn(str(self.folder), target.read_text(encoding="utf-8"))
        status, text = self.check_text(RIGHT, "--json", str(self.folder / "none" / "report.json"))
        self.assertEqual(status, 2)
        self.assertIn("can't be written", text)
        self.assertNotIn("cases pass", text)  # It is said before anything runs.

    def test_use_from_a_program(self):
        report = check.check(attention=lambda q, k, v: q * 0 + 2, cases=str(self.folder / "cases"), only="plain")
        self.assertEqual(report.status, 0)
        self.assertIn("1 of 1 cases pass", str(report))
        for wrong in ({}, {"attentoin": len}):
            with self.assertRaises(TypeError):
                check.check(**wrong)

    def test_bad_use(self):
        self.assertEqual(self.run_check()[0], 2)
        self.assertEqual(self.run_check("a.py", "--command", "b")[0], 2)
        status, text = self.run_check(str(self.folder / "missing.py"))
        self.assertEqual(status, 2)
        self.assertIn("There is no file", text)


class Candidates(Folder):
    def broken(self, body, *words):
        """Checks a candidate with this body: the words come, and the rest of the report is there."""
        status, text = self.check_text(f"import numpy as np\ndef attention(q, k, v, causal=False, mask=None):\n    {body}")
        self.assertEqual(status, 1, text)
        for word in words:
            self.assertIn(word, text)
        self.assertIn("the causal mask's corner", text)
        return text

    def test_raises(self):
        text = self.broken("raise ValueError(f'no {k.shape}')", "No result: ValueError", "(candidate.py, line 3)")
        self.assertEqual(text.count("No result: ValueError"), 1, "the same words come once, whatever the shapes")

    def test_exits(self):
        self.broken("raise SystemExit(3)", "No result: SystemExit: 3")

    def test_ends_the_process(self):
        self.broken("import os; os._exit(0)", "No result: the program ended with status 0")

    def test_hangs(self):
        seconds, check.PATIENCE = check.PATIENCE, 2.0
        try:
            self.broken("import time; time.sleep(600)", "No result: the program was silent for 2 seconds")
        finally:
            check.PATIENCE = seconds

    def test_hangs_while_it_is_loaded(self):
        seconds, check.PATIENCE = check.PATIENCE, 1.0
        try:
            status, text = self.check_text("import time; time.sleep(600)")
            self.assertEqual(status, 2)
            self.assertIn("candidate.py wasn't loaded within 1 seconds.", text)
        finally:
            check.PATIENCE = seconds

    def test_prints(self):
        status, text = self.check_text(RIGHT.replace("    ", "    print('{}')\n    ", 1))
        self.assertEqual(status, 0, text)

    def test_list_or_dict_in_place_of_a_tuple(self):
        self.broken("return [v, v]", "it returned a list: results come as a tuple (output, log_sum_exp)")
        self.broken("return {'output': v}", "it returned a dict: results come as a tuple")

    def test_none(self):
        self.broken("return None", "`output` is None")

    def test_wrong_shape(self):
        self.broken("return np.zeros((1, 2))", "`output` has the shape (1, 2), and (1, 2, 1) is right")

    def test_wrong_type(self):
        self.broken("return np.zeros((1, 2, 1), complex)", "`output` holds complex128")
        self.broken("return np.zeros((1, 2, 1), bool)", "`output` holds bool")
        self.broken("return 'abc'", "`output` holds")

    def test_ragged_list(self):
        self.broken("return [[1], [1, 2]]", "No result: ValueError")

    def test_nan(self):
        self.broken("return v[:, :q.shape[1]] * np.nan", "got [[[NaN]]]", "NaN or infinite where it shouldn't be")

    def test_lower_precision_is_noticed(self):
        more = cases()
        more[2]["inputs"]["v"] = [[[0.1], [0.1]]]
        more[2]["results"]["output"] = [[[0.1]]]
        self.write_cases(more)
        text = self.check_text(RIGHT.replace("return output", "return output.astype(np.float32)"))[1]
        self.assertIn("it returned float32 for float64", text)

    def test_arguments_of_other_names(self):
        status, text = self.check_text("def attention(Q, K, V):\n    return Q")
        self.assertEqual(status, 1)
        self.assertIn("`attention` has no parameter `q`", text)

    def test_input_with_its_default_needs_no_parameter(self):
        more = cases()
        more[2]["inputs"]["causal"] = False
        self.write_cases(more)
        self.assertIn("1 of 1 cases pass", self.check_text("def attention(q, k, v): return q + 2", "--only", "plain")[1])

    def test_files_that_cannot_be_used(self):
        for text, word in (
            ("def attention(:", "syntax error in line 1"),
            ("import no_such_library", "no_such_library, which isn't installed"),
            ("1 / 0", "ZeroDivisionError: division by zero (candidate.py, line 1)"),
            ("def attend(q): pass", "has no function named attention"),
        ):
            status, printed = self.check_text(text)
            self.assertEqual(status, 2)
            self.assertIn(word, printed)


class BadCases(Folder):
    def unread(self, *words):
        status, text = self.check_text(RIGHT)
        self.assertEqual(status, 2, text)
        for word in words:
            self.assertIn(word, text)
        return text

    def test_malformed_file(self):
        self.write("cases/rotate.json", '{"version": 1, ')
        self.assertIn("3 of 3 cases pass", self.unread("Not read: rotate.json"))

    def test_unknown_version_and_operation(self):
        self.write("cases/rotate.json", '{"version": 2}')
        self.write("cases/turn.json", '{"version": 1, "operation": "turn", "cases": []}')
        self.assertIn("3 of 3 cases pass", self.unread("version 2", "the operation 'turn'"))

    def test_malformed_cases(self):
        for change, words in (
            (lambda case: case.pop("name"), "case 4: it has no `name`"),
            (lambda case: case.pop("inputs"), "case plain: it has no `inputs`"),
            (lambda case: case.pop("results"), "case plain: it has no `results`"),
            (lambda case: case.pop("tolerance"), "case plain: it has no `tolerance`"),
            (lambda case: case["inputs"].pop("k"), "its inputs have no `k`"),
            (lambda case: case["inputs"].update(k=[[[0], [0, 1]]]), "input `k`: the rows differ in length"),
            (lambda case: case["inputs"].update(v=[[["one"]]]), "input `v`: 'one' isn't a number"),
            (lambda case: case["results"].update(output=[[2, [2]]]), "result `output`: the rows differ in length"),
            (lambda case: case["results"].pop("output"), "its results have no `output`"),
            (lambda case: case.update(faults=[{}]), "one of its faults has no `fault`"),
        ):
            bad = cases()[2]
            change(bad)
            self.write_cases([*cases(), bad])
            self.assertIn("3 of 3 cases pass", self.unread(words))
        self.write_cases([*cases(), "not a case"])
        self.unread("case 4: it has no `name`")

    def test_unknown_keys_are_ignored(self):
        more = cases()
        more[2].update(author="somebody")
        more[2]["inputs"].update(colour="red")
        more[2]["results"].update(weights=[1])
        self.write_cases(more)
        self.assertEqual(self.check_text(RIGHT)[0], 0)

    def test_no_words_for_a_fault(self):
        self.write("cases/faults.json", "[]")
        status, text = self.check_text(TOP_LEFT)
        self.assertIn("Not read: faults.json", text)
        self.assertIn("(faults.json has no words for it)", text)

    def test_no_cases(self):
        for path in (self.folder / "cases").iterdir():
            path.unlink()
        self.assertEqual(self.check_text(RIGHT)[0], 2)


class Programs(Folder):
    def answers(self, expression):
        return f"import json, sys, time\nfor line in sys.stdin:\n    question = json.loads(line)\n    print({expression}, flush=True)\n"

    def test_right_and_unsupported(self):
        text = 'json.dumps({"unsupported": "no masks"} if "mask" in question["inputs"] else {"results": {"output": [[[2]]]}})'
        status, printed = self.check_program(self.answers(text))
        self.assertIn("1 of 3 cases pass, 1 unsupported", printed)
        self.assertEqual(status, 1)

    def test_infinite_and_nan_come_as_words(self):
        text = 'json.dumps({"results": {"output": [[["NaN"]]], "log_sum_exp": [["NaN"]]}})'
        self.assertIn("HAS IT: nan-row", self.check_program(self.answers(text))[1])

    def test_answers_that_cannot_be_used(self):
        for expression, words in (
            ('"hello"', "it printed what isn't a JSON object: 'hello'"),
            ('"[1]"', "it printed what isn't a JSON object"),
            ('"{}"', "its answer has no `results`"),
            ('json.dumps({"results": 5})', "its answer has no `results`"),
            ('json.dumps({"results": {"output": [[1], 2]}})', "result `output`: the rows differ in length"),
            ('json.dumps({"results": {"output": None}})', "None isn't a number"),
            ('json.dumps({"results": {}})', "it returned no `output`"),
            ('json.dumps({"error": "out of memory"})', "its error: out of memory"),
        ):
            status, printed = self.check_program(self.answers(expression))
            self.assertEqual(status, 1)
            self.assertIn(words, printed)

    def test_crash_is_told_and_the_next_case_gets_a_new_program(self):
        crash = "sys.exit('the mask broke me') if 'mask' in question['inputs'] else json.dumps({'results': {'output': [[[2]]]}})"
        status, printed = self.check_program(self.answers(crash))
        self.assertIn("the program ended with status 1: the mask broke me", printed)
        self.assertIn("1 of 3 cases pass", printed)

    def test_line_too_many_does_not_answer_the_next_case(self):
        one = 'json.dumps({"results": {"output": [[[2]]]}})'
        noise = f'"loading\\n" + {one.replace("2", "7")} if "mask" in question["inputs"] else {one}'
        self.assertIn("1 of 3 cases pass", self.check_program(self.answers(noise))[1])

    def test_silence(self):
        seconds, check.SILENCE = check.SILENCE, 0.5
        try:
            silent = "time.sleep(60) if 'mask' in question['inputs'] else json.dumps({'results': {'output': [[[2]]]}})"
            status, printed = self.check_program(self.answers(silent))
            self.assertIn("silent for 0.5 seconds", printed)
            self.assertIn("1 of 3 cases pass", printed)
            self.write_cases(cases() + cases())
            status, printed = self.check_program(self.answers("time.sleep(60)"))
            self.assertIn("no answer three times in a row", printed)
        finally:
            check.SILENCE = seconds

    def test_report_has_no_paths(self):
        path = self.write("program.py", self.answers("'{}'"))
        report = check.check_command(f"{sys.executable} {path}", cases=str(self.folder / "cases"))
        self.assertNotIn(str(self.folder), report.as_json())

    def test_no_such_program(self):
        for command in ("no-such-program-anywhere", ""):
            status, printed = self.run_check("--command", command)
            self.assertEqual(status, 2)
            self.assertIn("doesn't exist", printed)


class Frameworks(Folder):
    DIFFERENTIABLE = """
        framework = "{}"
        def attention(q, k, v, causal=False):
            e = {}.exp(q @ k.swapaxes(1, 2))
            return e / e.sum(-1, keepdims=True) @ v
    """

    def gradients(self, framework, module):
        gradient = {
            "name": "gradient", "says": "P = ½, ½ and dP = 0.1, 0.", "tolerance": TOLERANCE,
            "inputs": {"q": [[[1]]], "k": [[[0], [0]]], "v": [[[0.1], [0]]], "d_output": [[[1]]]},
            "results": {"output": [[[0.05]]], "d_q": [[[0]]], "d_k": [[[0.025], [-0.025]]], "d_v": [[[0.5], [0.5]]]},
            "faults": [],
        }
        value = {"version": 1, "operation": "attention_gradients", "cases": [gradient]}
        self.write("cases/attention_gradients.json", json.dumps(value))
        text = textwrap.dedent(self.DIFFERENTIABLE).format(framework, module.split(".")[-1])
        text = f"import {module.split('.')[0]}\n" + (f"from jax import numpy\n{text}" if "jax" in module else text)
        status, printed = self.check_text(text, "--only", "attention_gradients")
        self.assertEqual(status, 0, printed)
        self.assertIn("1 of 1 cases pass", printed)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch isn't installed")
    def test_pytorch(self):
        self.gradients("torch", "torch")

    @unittest.skipUnless(importlib.util.find_spec("jax"), "JAX isn't installed")
    def test_jax(self):
        self.gradients("jax", "jax.numpy")


class TheSuite(unittest.TestCase):
    """The cases themselves, with the candidates beside them."""

    def test_readme_shows_what_is_printed(self):
        readme = (HERE / "README.md").read_text(encoding="utf-8")
        code = readme.split("```python\n")[1].split("```")[0]
        without_faults = readme.split("```python\n")[2].split("```")[0]
        shown, two_more = (readme.split("```text\n")[i].split("```")[0].splitlines() for i in (1, 2))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "my_attention.py"
            path.write_text(code, encoding="utf-8")
            printed = str(check.check_file(str(path), only="causal-after-a-cache")).splitlines()
            # As *Does yours pass?* says, after its mask is mended.
            path.write_text(code.replace(", 1)\n", ", 1 + k.shape[1] - q.shape[1])\n"), encoding="utf-8")
            mended = check.check_file(str(path))
            path.write_text(without_faults, encoding="utf-8")
            right = check.check_file(str(path))
            self.assertEqual(right.status, 0)
        # The second line has versions.
        self.assertEqual(printed[:1] + printed[2:], shown[:1] + shown[2:])
        self.assertIn("\n".join(two_more), str(mended))
        for report in (mended, right):
            self.assertIn(f"\n    {str(report).splitlines()[0]}\n", readme)
        self.assertEqual(set(mended.faults), {"empty-row-nan", "hidden-nan"})
        self.assertEqual(mended.counts["broken"], 2)
        self.assertFalse(mended.passes_but_for("empty-row-nan", "hidden-nan"), "two cases end in an error")
        self.assertGreater(mended.counts["unsupported"], mended.counts["cases"] / 2)

    def test_readme_has_the_table_of_the_results(self):
        self.assertIn(take.table(), (HERE / "README.md").read_text(encoding="utf-8"))

    def test_right_candidate_passes_everything(self):
        report = check.check_file(str(HERE / "candidates" / "numpy_right.py"))
        self.assertEqual(report.status, 0, str(report))
        self.assertEqual(report.counts["passed"], report.counts["cases"], str(report))

    def test_textbook_has_its_known_faults_and_no_others(self):
        report = check.check_file(str(HERE / "candidates" / "numpy_textbook.py"))
        self.assertEqual(set(report.faults), {"causal-top-left", "empty-row-mean", "hidden-nan"}, str(report))
        self.assertEqual(report.counts["wrong"] + report.counts["broken"], 0, str(report))
        self.assertTrue(report.passes_but_for("causal-top-left", "empty-row-mean", "hidden-nan"))
        self.assertFalse(report.passes_but_for("causal-top-left", "hidden-nan"))

    @unittest.skipUnless(PLANTED, "SUITE_PLANTED isn't set")
    def test_planted_faults_are_named_exactly(self):
        faults = json.loads((HERE / "cases" / "faults.json").read_text(encoding="utf-8"))["faults"]
        self.assertEqual(check.check_command(PLANTED).faults, [])
        for fault in faults:
            with self.subTest(fault=fault):
                report = check.check_command(f"{PLANTED} --fault {fault}", same_bits=True)
                self.assertEqual(report.faults, [fault], str(report))
                self.assertEqual(report.found[0].alike, [], str(report))
                named = [o.case.name for o in report.outcomes if fault in o.case.faults]
                self.assertEqual([o.case.name for o in report.outcomes if o.failed], named, str(report))


if __name__ == "__main__":
    unittest.main()
