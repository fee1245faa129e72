"""Answers as torch_worker.py does, with made-up seconds, so that the run can be tested without a GPU.

A backend takes as many times 1e-3 s as this says, more for later launches. Efficient refuses n = 1024, and math goes away
when it is asked for n = 2048.
"""

import json
import sys

SECONDS = {"flash": 1, "cudnn": 2, "efficient": 3, "math": 40, "flash4": 0.9, "flash4-deterministic": 1.2}


def say(**answer):
    print(json.dumps(answer), flush=True)


say(answer="hello", versions={"torch": "9.9.9", "cudnn": "8.8.8"}, threads=3)
for line in sys.stdin:
    question = json.loads(line)
    if question["do"] == "product":
        # 1000 TFLOP/s in bf16, 50 in f32
        rate = {"bf16": 1e15, "f32": 5e13}[question["dtype"]]
        say(answer="done", seconds=[2 * question["side"] ** 3 / rate] * question["launches"])
        continue
    tokens = 131072 if question["pass"] == "decoding" else 16384
    assert question["batch"] * question["n"] == tokens and question["heads"] * question["d"] >= 2048, question
    if (question["backend"], question["n"]) == ("efficient", 1024):
        say(answer="error", message="RuntimeError: No available kernel.")
        continue
    if (question["backend"], question["n"]) == ("math", 2048):
        sys.exit(3)
    one = 1e-3 * SECONDS[question["backend"]] * (2.5 if question["pass"] == "backward" else 1)
    say(answer="done", seconds=[one * (1 + 0.01 * i) for i in range(question["launches"])])
