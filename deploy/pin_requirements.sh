#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Resolve requirements/*.in in fresh environments and write the whole closure, pinned, beside them.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
for name in dev protos; do
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    "$python" -m venv "$scratch/venv"
    "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "requirements/$name.in"
    "$scratch/venv/bin/pip" check
    {
        echo "# Made from $name.in by \`make requirements\`: the whole closure, pinned. CPython 3.11 and 3.12, Linux."
        # setuptools is left out by freeze unless --all is said, and the code generator needs the one it was given.
        "$scratch/venv/bin/pip" freeze --all | grep -v '^pip=='
    } >"$scratch/pinned"
    mv "$scratch/pinned" "requirements/$name.txt"
    rm -rf "$scratch"
done
