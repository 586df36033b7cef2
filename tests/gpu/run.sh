#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a real device, in one go: tests/gpu/run.sh FOLDER [STAGE...]
#
# For a machine that has a driver, PyTorch and nothing of this project: PYTHON names its interpreter (default: python3),
# .whl/ may hold wheels of what it lacks, TIMESLICE_ETCD names an etcd (default: .tools/etcd/etcd).
# Logs and results go to FOLDER; it ends within nine minutes. Stages: driver, probe, system, system2 (two devices), each
# of which fits alone; by default driver and system.
set -uo pipefail
cd "$(dirname "$0")/../.."

folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
stages=${*:-driver system}
python=${PYTHON:-python3}
begin=$SECONDS limit=540 failed=0

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if compgen -G '.whl/*.whl' >/dev/null; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .whl/*.whl || exit 1
fi
# Some distributions install a package `tests` of their own, which would hide this one.
mkdir -p "$site/tests"
echo "__path__ = [r'$PWD/tests']" >"$site/tests/__init__.py"
chmod -R a+rX "$site"
export PYTHONPATH=$site:.:protos PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export TIMESLICE_ETCD=${TIMESLICE_ETCD:-$PWD/.tools/etcd/etcd}

stage() { # NAME SECONDS COMMAND...: its output to FOLDER/NAME.log, at most that long, and not beyond the whole limit
    local name=$1 seconds=$2 left=$((limit - SECONDS + begin)) start=$SECONDS
    shift 2
    [[ " $stages " == *" $name "* ]] || return 0
    ((seconds > left)) && seconds=$left
    ((seconds > 0)) || { echo "== $name: no time left" && failed=1 && return 0; }
    echo "== $name: $* (at most $seconds s)"
    timeout --kill-after=10 "$seconds" "$@" >"$folder/$name.log" 2>&1
    local code=$?
    echo "== $name ended with $code after $((SECONDS - start)) s; its end:"
    tail -n 40 "$folder/$name.log" | cut -c1-300
    ((code == 0)) || failed=1
}

{
    date
    uname -a
    nvidia-smi
    "$python" -c 'import sys, torch, grpc, google.protobuf, cuda.bindings
print(sys.version, torch.__version__, torch.cuda.nccl.version(), grpc.__version__, google.protobuf.__version__,
      cuda.bindings.__version__, sep="\n")'
    "$TIMESLICE_ETCD" --version
    nproc
    free -m
} >"$folder/machine.log" 2>&1

tests=("$python" -m pytest -p no:cacheprovider -m gpu -ra --tb=long --durations=0)
stage driver 200 "${tests[@]}" tests/gpu/test_driver.py --junitxml="$folder/driver.xml"
stage probe 240 "$python" -m tests.gpu.probe "$folder/probe.json"
export TIMESLICE_GPU_LOGS=$site/logs
stage system 480 "${tests[@]}" -s tests/gpu/test_system.py --junitxml="$folder/system.xml"
stage system2 480 "${tests[@]}" -s tests/gpu/test_two_devices.py --junitxml="$folder/system2.xml"
[[ -d $TIMESLICE_GPU_LOGS ]] && tar -czf "$folder/logs.tgz" -C "$TIMESLICE_GPU_LOGS" .
dmesg 2>/dev/null | grep -iE 'nvrm|xid|oom' | tail -n 40 >>"$folder/machine.log"
echo "== all took $((SECONDS - begin)) s"
exit "$failed"
