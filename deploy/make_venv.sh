#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make a virtual environment and install a pinned set into it: make_venv.sh FOLDER REQUIREMENTS
# PYTHON names the interpreter (default: python3). An environment that is there and works is brought up to date.
set -euo pipefail

folder=$1 requirements=$2 python=${PYTHON:-python3}

fail() {
    echo "make_venv: $1" >&2
    echo "  what to do: $2" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "there is no $python" "apt-get install python3 python3-venv"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
3.11 | 3.12) ;;
*) fail "$python is Python $version; the pinned set is for 3.11 and 3.12" "make PYTHON=python3.11 (or python3.12)" ;;
esac
# Debian and Ubuntu ship venv without the part that installs pip, in a package of its own.
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments" "apt-get install python$version-venv"

if ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
    "$python" -m venv --clear "$folder"
fi
echo "make_venv: $folder from $requirements (Python $version)"
"$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
