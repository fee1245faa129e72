#!/usr/bin/env bash
# Tests this crate's kernels on the GPU of this machine, then times them. Any failure ends it.
#
#   ./run.sh [--output FOLDER] [arguments of `gpu time`]
#
# The record, gpu.json, and the logs of the tests go to FOLDER, or else to $OUTPUT, or else to the current folder.
# `--python PROGRAM` names the Python that has PyTorch and the CUDA wheels; without it, python3.
# A test that takes more than TEST_SECONDS (600) is ended: a kernel that waits for ever would not end by itself.
# KEEP_GOING=1 times even what a test found wrong: the end is a failure all the same.
# In the end compute-sanitizer watches every kernel, without rules and masks, if it is there (pip install
# nvidia-cuda-sanitizer-api), for SANITIZER_SECONDS (60) with each of its tools.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

stop() { echo "error: $*" >&2; exit 1; }

output=${OUTPUT:-$PWD} python=python3 arguments=()
while [ $# -gt 0 ]; do
    case $1 in
    --output) output=${2:?--output needs a folder}; shift ;;
    --output=*) output=${1#*=} ;;
    --python) python=${2:?--python needs a program}; shift ;;
    --python=*) python=${1#*=} ;;
    *) arguments+=("$1") ;;
    esac
    shift
done
mkdir -p -- "$output" || stop "the folder $output cannot be made"
output=$(cd -- "$output" && pwd)
for file in gpu cuda_compile cuda_device torch_worker.py; do
    [ -f "$here/$file" ] || stop "$here has no $file; make the folder again with \`cargo xtask gpu pack\`"
done

# NVRTC as a wheel of that Python, after what LD_LIBRARY_PATH names already.
wheels=$("$python" - <<'END' 2>/dev/null || true
import glob, nvidia
patterns = "cu1[0-9]/lib", "cuda_nvrtc/lib"
folders = (d for p in nvidia.__path__ for pattern in patterns for d in sorted(glob.glob(f"{p}/{pattern}"))[::-1])
print(":".join(d for d in folders if glob.glob(d + "/libnvrtc.so*")))
END
)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+${wheels:+:}}$wheels"
export REQUIRE_GPU=1 REQUIRE_NVRTC=1

"$here/gpu" device || stop "the GPU cannot be used, for the reason above"

failed=()
for test in cuda_compile cuda_device; do
    log=$output/$test.log
    echo "== $test (its words: $log)"
    if timeout --kill-after=10 "${TEST_SECONDS:-600}" "$here/$test" >"$log" 2>&1; then
        grep '^test result' "$log" || stop "$test ran no test"
    else
        [ $? != 124 ] || echo "error: $test took more than ${TEST_SECONDS:-600} seconds" >>"$log"
        tail -n 40 -- "$log" >&2
        [ "${KEEP_GOING:-0}" = 1 ] || stop "$test failed; all of its words are in $log"
        failed+=("$test")
    fi
done

echo "== times"
"$here/gpu" time --record "$output/gpu.json" --python "$python" ${arguments[@]+"${arguments[@]}"} ||
    stop "the kernels were not timed, for the reason above"

# The sanitizer of that Python, or of the path. One small test runs every kernel.
sanitizer=$("$python" - <<'END' 2>/dev/null || true
import glob, nvidia
print(next(iter(f for p in nvidia.__path__ for f in glob.glob(f"{p}/*/bin/compute-sanitizer")), ""))
END
)
sanitizer=${sanitizer:-$(command -v compute-sanitizer || true)}
if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck synccheck; do
        log=$output/$tool.log
        echo "== $tool (its words: $log)"
        status=0
        timeout --kill-after=10 "${SANITIZER_SECONDS:-60}" "$sanitizer" --tool "$tool" --error-exitcode 9 \
            "$here/cuda_device" --exact each_run_gives_the_same_bits --test-threads 1 >"$log" 2>&1 || status=$?
        if grep -qE '^=+ +(Invalid|Error|Race|Warning: Race|Barrier|Divergent|Misaligned)' "$log"; then
            tail -n 20 -- "$log" >&2
            failed+=("$tool")
        elif [ $status = 124 ]; then
            echo "$tool was ended after ${SANITIZER_SECONDS:-60} seconds: until then it found nothing"
        elif [ $status = 0 ] && grep -q '^test result: ok. 1 passed' "$log"; then
            grep SUMMARY "$log" || true
        else
            tail -n 20 -- "$log" >&2
            failed+=("$tool")
        fi
    done
else
    echo "no compute-sanitizer: no tool watched the kernels"
fi
[ ${#failed[@]} = 0 ] || stop "timed, but these tests failed: ${failed[*]}"
echo "done: put $output/gpu.json into records/ of the project, which \`cargo xtask gpu add FILE\` does there"
