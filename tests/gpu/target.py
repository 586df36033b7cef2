# SPDX-License-Identifier: Apache-2.0
"""A CUDA process to act on: `python target.py KIND [BYTES]`. It answers each line of its standard input with a line of
JSON; the first line says that it is ready. No package of this project is imported: it stands for somebody's job.

Kinds: what a process can have on a device, each one thing beyond a context and some tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

MIB = 1 << 20


def say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


def driver(result: tuple[Any, ...]) -> Any:
    """The value of a CUDA driver call, or an exception."""
    code, *values = result
    if int(code):
        raise RuntimeError(str(code))
    return values[0] if values else None


def fingerprint(tensors: list[Any]) -> str:
    """SHA-256 over weighted sums of all 64-bit words, taken on the device block by block: one changed word shows."""
    import torch

    digest = hashlib.sha256()
    for tensor in tensors:
        words = tensor.detach().reshape(-1).view(torch.int64)
        for start in range(0, words.numel(), 8 * MIB):
            block = words[start : start + 8 * MIB]
            weights = torch.arange(1, 2 * block.numel(), 2, device=block.device)
            digest.update(int((block * weights).sum().item() & (2**64 - 1)).to_bytes(8, "little"))
    return digest.hexdigest()


def full_hash(tensors: list[Any]) -> str:
    """SHA-256 of every byte, on the host."""
    import torch

    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().reshape(-1).view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()


def hold_tensor(given: Any, back: Any) -> None:
    """In the other process: open the tensor, and keep it until whoever gave it has ended."""
    tensor = given.get()
    back.put(float(tensor[0].item()))
    try:
        given.get()
    except EOFError:
        os._exit(0)


class Target:
    """The tensors, and whatever its kind has beside them."""

    def __init__(self, kind: str, size: int) -> None:
        self.tensors: list[Any] = []
        self.kept: list[Any] = []
        import torch

        self.torch = torch
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.manual_seed(os.getpid())
        count = max(1, size // (256 * MIB))
        for _ in range(count):
            self.tensors.append(torch.randn(size // count // 4, device="cuda"))
        torch.cuda.synchronize()
        getattr(self, f"make_{kind.replace('-', '_')}", lambda: None)()

    def make_managed(self) -> None:
        from cuda.bindings import driver as cuda

        pointer = driver(cuda.cuMemAllocManaged(64 * MIB, cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
        driver(cuda.cuMemsetD8(pointer, 7, 64 * MIB))
        self.torch.cuda.synchronize()
        self.kept.append(pointer)

    def make_ipc_export(self) -> None:
        from cuda.bindings import driver as cuda

        pointer = driver(cuda.cuMemAlloc(64 * MIB))
        driver(cuda.cuMemsetD8(pointer, 7, 64 * MIB))
        handle = driver(cuda.cuIpcGetMemHandle(pointer))
        self.kept += [pointer, bytes(handle.reserved).hex()]

    def make_ipc_import(self) -> None:
        from cuda.bindings import driver as cuda

        handle = cuda.CUipcMemHandle()
        handle.reserved = bytes.fromhex(os.environ["IPC_HANDLE"])
        flags = cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        self.kept.append(driver(cuda.cuIpcOpenMemHandle(handle, flags)))

    def make_torch_ipc(self) -> None:
        """A tensor given to a process of its own, as PyTorch shares them."""
        import torch.multiprocessing as mp

        context = mp.get_context("spawn")
        given, back = context.SimpleQueue(), context.SimpleQueue()
        child = context.Process(target=hold_tensor, args=(given, back), daemon=True)
        child.start()
        given.put(self.tensors[0])
        self.kept += [given, back, child, back.get()]

    def make_two_devices(self) -> None:
        """A context on the second device too."""
        self.tensors.append(self.torch.randn(16 * MIB, device="cuda:1"))
        self.torch.cuda.synchronize(1)

    def make_vmm_export(self) -> None:
        """Virtual memory exported as a file descriptor, as NCCL does with NCCL_CUMEM_ENABLE."""
        from cuda.bindings import driver as cuda

        prop = cuda.CUmemAllocationProp()
        prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = 0
        shareable = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        prop.requestedHandleTypes = shareable
        handle = driver(cuda.cuMemCreate(64 * MIB, prop, 0))
        self.kept += [handle, driver(cuda.cuMemExportToShareableHandle(handle, shareable, 0))]

    def make_pinned(self) -> None:
        self.kept.append(self.torch.empty(256 * MIB, dtype=self.torch.uint8, pin_memory=True))

    def make_fork(self) -> None:
        """A child forked from a process with a context, as a data loader's workers are."""
        pid = os.fork()
        if pid == 0:
            sys.stdout.close()
            signal.pause()
            os._exit(0)
        self.kept.append(pid)

    def make_graph(self) -> None:
        graph = self.torch.cuda.CUDAGraph()
        self.out = self.tensors[0][:1024] * 2
        with self.torch.cuda.graph(graph):
            self.out = self.tensors[0][:1024] * 3
        graph.replay()
        self.torch.cuda.synchronize()
        self.kept.append(graph)

    def make_nccl(self) -> None:
        import torch.distributed as dist

        device = self.torch.device("cuda", self.torch.cuda.current_device())
        rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), world, rank == 0)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=world, device_id=device)
        self.do_reduce()

    make_nccl_safe = make_nccl

    def make_nccl_lazy(self) -> None:
        """The process group is there, its communicator not yet."""
        import torch.distributed as dist

        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 1, True)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)

    def make_nccl_gone(self) -> None:
        """The communicator was there, and is destroyed."""
        import torch.distributed as dist

        self.make_nccl()
        dist.destroy_process_group()

    def do_reduce(self) -> float:
        import torch.distributed as dist

        ones = self.torch.ones(1024, device="cuda")
        dist.all_reduce(ones)
        return float(ones[0].item())

    # ------------------------------------------------------------------------------------------------ commands

    def do_print(self) -> str:
        return fingerprint(self.tensors)

    def do_hash(self) -> str:
        return full_hash(self.tensors)

    def do_step(self) -> float:
        """One computation that changes every tensor."""
        for tensor in self.tensors:
            tensor.mul_(1.0009765625).add_(0.5)
        return float(sum(one[:1000].sum().item() for one in self.tensors))

    def do_spin(self) -> str:
        """Keep the device busy for about three seconds, without waiting for it."""
        self.torch.cuda._sleep(5_000_000_000)
        return "spinning"

    def do_handle(self) -> str:
        return str(self.kept[-1])

    def do_replay(self) -> float:
        self.kept[-1].replay()
        return float(self.out.sum().item())


def without_tensors(kind: str) -> Callable[[], Any] | None:
    """Processes that have no tensor; some of them look as if they used a device."""
    match kind:
        case "host":
            return lambda: None
        case "cuinit":
            from cuda.bindings import driver as cuda

            return lambda: (driver(cuda.cuInit(0)), driver(cuda.cuDeviceGetCount()))
        case "count":
            import torch

            return lambda: [torch.cuda.device_count()]
        case "nvml":
            import pynvml

            return lambda: (pynvml.nvmlInit(), pynvml.nvmlDeviceGetHandleByIndex(0))
        case _:
            return None


def main(kind: str, size: str = str(64 * MIB)) -> None:
    begin = time.monotonic()
    bare = without_tensors(kind)
    target = None
    if bare is not None:
        bare()
    else:
        target = Target(kind, int(size))
    say(ready=kind, pid=os.getpid(), took=round(time.monotonic() - begin, 2))
    for line in sys.stdin:
        begin = time.monotonic()
        value = getattr(target, f"do_{line.strip()}")() if target else None
        say(value=value, took=round(time.monotonic() - begin, 3))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
