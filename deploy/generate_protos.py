# SPDX-License-Identifier: Apache-2.0
"""Generate the Python code of the messages and services, or with `--check` say whether the committed code is current.

Run by `make protos` and `make check-protos` in an environment of its own (requirements/protos.txt): code from that
old compiler runs on every later protobuf. The results, with their `.pyi`, are committed, so that nobody who installs
or tests needs a compiler.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


@dataclass(frozen=True)
class Tree:
    """A folder that protoc takes as its root, and the files below it that are compiled."""

    root: str
    pattern: str

    def sources(self) -> list[Path]:
        """The .proto files, relative to the root."""
        root = ROOT / self.root
        return sorted(path.relative_to(root) for path in root.glob(self.pattern))


TREES = (
    Tree("protos", "timeslice_proto/v1/*.proto"),
    # Generated below the repository's root, so that its import is `ledger.etcd`; it belongs to the ledger alone.
    Tree(".", "ledger/etcd/*.proto"),
)


def has_service(path: Path) -> bool:
    """True if the file defines a service; without one there is no second module to generate."""
    return any(line.startswith("service ") for line in path.read_text(encoding="utf-8").splitlines())


def compile_tree(tree: Tree, out: Path) -> None:
    """Generate the code of one tree below `out`. Exits with protoc's own words on an error."""
    include = resources.files("grpc_tools") / "_proto"
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    sources = tree.sources()
    services = [source for source in sources if has_service(ROOT / tree.root / source)]
    common = ["protoc", f"-I{ROOT / tree.root}", f"-I{include}"]
    messages = [f"--plugin=protoc-gen-mypy={plugin}", f"--python_out={out}", f"--mypy_out=quiet:{out}"]
    stubs = [
        f"--plugin=protoc-gen-mypy_grpc={plugin}_grpc",
        f"--grpc_python_out={out}",
        f"--mypy_grpc_out=quiet:{out}",
    ]
    for options, files in ((messages, sources), (stubs, services)):
        if files and protoc.main([*common, *options, *map(str, files)]) != 0:
            sys.exit(f"generate_protos: protoc failed for {tree.root}/{tree.pattern}; its reason is above")


def generated_files(root: Path, tree: Tree) -> set[Path]:
    """The generated files of one tree that are there below `root`, relative to it."""
    folder = root / Path(tree.pattern).parent
    return {path.relative_to(root) for pattern in GENERATED for path in folder.glob(pattern)}


def differences() -> list[str]:
    """The committed files that are not what the generator makes now, each with what is wrong."""
    found: list[str] = []
    for tree in TREES:
        with tempfile.TemporaryDirectory() as scratch:
            fresh = Path(scratch)
            compile_tree(tree, fresh)
            committed = ROOT / tree.root
            made, there = generated_files(fresh, tree), generated_files(committed, tree)
            found += [f"{committed / path}: missing" for path in sorted(made - there)]
            found += [f"{committed / path}: its .proto is gone" for path in sorted(there - made)]
            found += [
                f"{committed / path}: not current"
                for path in sorted(made & there)
                if (fresh / path).read_bytes() != (committed / path).read_bytes()
            ]
    return found


def main() -> None:
    """Generate, or check. Exits with 1 if the committed code is not current."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, compare with what is committed")
    if parser.parse_args().check:
        found = differences()
        if found:
            sys.exit("\n".join(found) + "\ngenerate_protos: run `make protos` and commit the result")
        print("generate_protos: the committed code is current")
        return
    for tree in TREES:
        for stale in generated_files(ROOT / tree.root, tree):
            (ROOT / tree.root / stale).unlink()
        compile_tree(tree, ROOT / tree.root)
        print(f"generate_protos: {len(tree.sources())} files of {tree.root}/{tree.pattern}")


if __name__ == "__main__":
    main()
