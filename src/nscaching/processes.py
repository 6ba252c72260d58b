"""The processes of a run: starting them, joining them, and errors that all of them raise alike.

``torchrun`` starts processes on several hosts, ``nscaching train --processes`` on one machine with
the same agent. A process that is lost ends its group, and the agent starts the group again.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nscaching._version import __version__
from nscaching.errors import LostPeers, NSCachingError, UserError

#: What the processes of a launch run.
MODULE = "nscaching"
#: Folder in which a process that ends for good leaves its exit code for the launcher.
_LAUNCHER = "NSCACHING_LAUNCHER"
#: Seconds that processes have to save when they are asked to stop.
_SAVING_SECONDS = 600
_LOST = ("onnection closed", "onnection reset", "roken pipe", "imed out", "Socket", "NCCL", "gloo")


@dataclass(frozen=True)
class Group:
    """The processes of a run, as one of them sees them; a run of one process has :data:`ALONE`."""

    rank: int = 0
    size: int = 1
    gloo: Any = None  #: process group for Python objects, on CPUs
    background: Any = None  #: another one, for the thread that writes checkpoints

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value, group=self.gloo)
        return found

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0."""
        if self.size == 1:
            return value
        sent = [value]
        distributed.broadcast_object_list(sent, src=0, group=self.gloo)
        return sent[0]

    def any(self, flag: bool) -> bool:
        """Tell whether the flag of any rank is set."""
        return any(self.gather(flag))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather(None)

    def one_by_host_first(self, work: Callable[[], None]) -> None:
        """Do what leaves something for later processes of a host, such as compiled kernels."""
        first = self.size == 1 or os.environ.get("LOCAL_RANK", "0") == "0"
        for mine in (first, not first):
            if mine:
                work()
            self.barrier()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Raise on every rank what a user got wrong on one; no exchange may lie inside."""
        error: UserError | None = None
        try:
            yield
        except UserError as mine:
            error = mine
        for rank, told in enumerate(self.gather(None if error is None else str(error))):
            if told is not None:
                raise error if error is not None and rank == self.rank else _heard(told)

    def refuse_differences(self, facts: Mapping[str, Any]) -> None:
        """Refuse to train where the ranks do not agree on the version, the data or an option."""
        mine = {"nscaching": __version__, "torch": torch.__version__, **facts}
        first, *others = self.gather((socket.gethostname(), mine))
        for rank, (host, told) in enumerate(others, 1):
            for name, value in first[1].items():
                if told.get(name) != value:
                    raise _heard(
                        f"The processes do not agree on {name}: rank 0 on {first[0]} has {value}, "
                        f"rank {rank} on {host} has {told.get(name)}. All hosts need the same "
                        "version, data and options.",
                        quiet=self.rank > 0,
                    )

    def refuse_another_folder(self, folder: Path, found: str | None) -> None:
        """Refuse a run folder that is not the same one on all hosts, by the id of its marker."""
        first, *others = self.gather((socket.gethostname(), found))
        for host, told in others:
            if told != first[1]:
                raise _heard(
                    f"{host} does not see {folder} as {first[0]} does: put --out on a file system "
                    "that all hosts share.",
                    quiet=self.rank > 0,
                )

    def refuse_lack_of_memory(self, needed: int, free: int | None) -> None:
        """Refuse to train where a host has less memory free than its ranks need together."""
        hosts: dict[str, list[int]] = {}
        for host, bytes_needed, bytes_free in self.gather((socket.gethostname(), needed, free)):
            if bytes_free is not None:
                ranks, total, least = hosts.get(host, [0, 0, bytes_free])
                hosts[host] = [ranks + 1, total + bytes_needed, min(least, bytes_free)]
        for host, (ranks, total, least) in hosts.items():
            if total > least:
                raise _heard(
                    f"{host} lacks memory: its {ranks} processes need {total / 1e9:,.1f} GB and "
                    f"{least / 1e9:,.1f} GB are free. Use more hosts, or a smaller dim, cache_size "
                    "or batch_size.",
                    quiet=self.rank > 0,
                )


def _heard(told: str, quiet: bool = True) -> UserError:
    """Return an error that another rank speaks of too; quiet: that one prints it."""
    error = UserError(told)
    vars(error)["quiet"] = quiet
    return error


ALONE = Group()
_joined: list[Group] = []


def current_group() -> Group:
    """Return the group that this process has joined, or :data:`ALONE`."""
    return _joined[-1] if _joined else ALONE


def is_worker() -> bool:
    """Tell whether this process was started as one of a group, by torchrun or ``--processes``."""
    there = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    return there and (os.environ["WORLD_SIZE"] != "1" or "TORCHELASTIC_RUN_ID" in os.environ)


def is_main() -> bool:
    """Tell whether this process speaks for its group: rank 0, or one that is alone."""
    return not is_worker() or os.environ["RANK"] == "0"


def attempt() -> int:
    """Return how often the group was started again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def launch_id() -> str | None:
    """Return what the attempts of one launch have in common and no other launch has."""
    if not is_worker():
        return None
    told = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return told if told != "none" else f"{socket.gethostname()}-{os.getppid()}"


@contextlib.contextmanager
def joined(device: str = "auto") -> Iterator[Group]:
    """Join the group that this process was started in; ALONE where there is none."""
    if _joined or not is_worker():
        yield current_group()
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local, neighbours = int(os.environ.get("LOCAL_RANK", rank)), _local_size()
    on_gpu = device in ("auto", "cuda") and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(local % torch.cuda.device_count())
    nccl = on_gpu and neighbours <= torch.cuda.device_count() and distributed.is_nccl_available()
    _begin_worker()
    _divide_threads(neighbours)
    _choose_interface(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if nccl else "gloo", store=_store(), rank=rank, world_size=size
    )
    own = [distributed.new_group(backend="gloo") for _ in range(2)]
    _joined.append(Group(rank, size, *own))
    try:
        with _lost_peers():
            yield current_group()
    finally:
        _joined.clear()
        if sys.exc_info()[0] is None:  # else peers may be gone, and this would wait for them
            distributed.destroy_process_group()


def _begin_worker() -> None:
    """Forget what an earlier attempt said, and end with the launcher if that is killed."""
    if _LAUNCHER in os.environ:
        _verdict().unlink(missing_ok=True)
        end_with_parent()


def end_with_parent() -> None:
    """Have this process asked to stop when the one that started it is killed."""
    with contextlib.suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _verdict() -> Path:
    return Path(os.environ[_LAUNCHER], f"exit-{os.environ['RANK']}")


def _local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _store() -> Any:
    """Return the store of this attempt: what an earlier one left in it is not met again."""
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store, _, _ = next(rendezvous("env://", timeout=timedelta(minutes=15)))
    except (RuntimeError, ValueError, OSError) as error:  # DistNetworkError is a RuntimeError
        if "EADDRINUSE" in str(error) or "already in use" in str(error):
            raise UserError(
                f"The port of {where} is taken by another program; choose another one "
                "(torchrun --master-port or --rdzv-endpoint)."
            ) from error
        raise UserError(
            f"The first process cannot be reached at {where} ({str(error).splitlines()[0]}). Start "
            "torchrun on every host, and see that a firewall lets them through."
        ) from error
    return PrefixStore(f"attempt-{attempt()}", store)


@contextlib.contextmanager
def _lost_peers() -> Iterator[None]:
    """Say in a sentence that a peer is gone: it, or the launcher, has said why."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, NSCachingError) or not any(word in str(error) for word in _LOST):
            raise
        lost = LostPeers(
            f"Rank {os.environ['RANK']} lost its connection to another process of the run."
        )
        restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
        vars(lost)["quiet"] = attempt() < restarts  # the next attempt says that it is one
        raise lost from error


def _divide_threads(processes: int) -> None:
    """Share the cores among the processes of a host, unless a user has said how many to take."""
    if "NUMBA_NUM_THREADS" in os.environ or processes == 1:
        return
    threads = max(1, cores() // processes)
    torch.set_num_threads(threads)
    with contextlib.suppress(ImportError):
        import numba

        numba.set_num_threads(min(threads, numba.get_num_threads()))


def _choose_interface(host: str, port: int) -> None:
    """Tell gloo and NCCL the network interface by which the first host is reached."""
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            mine = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                asked = struct.pack("256s", name.encode()[:15])
                with contextlib.suppress(OSError):  # it has no address
                    answer = fcntl.ioctl(probe.fileno(), 0x8915, asked)  # SIOCGIFADDR
                    if socket.inet_ntoa(answer[20:24]) == mine:
                        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
                        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
    except (ImportError, OSError):  # gloo chooses by the name of the host
        pass


# On one machine -----------------------------------------------------------------------------------


def launch(
    arguments: Sequence[str], processes: int, max_restarts: int, module: str = MODULE
) -> int:
    """Run a module with these arguments on so many processes; return the exit code."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)

    def stop(number: int, frame: FrameType | None) -> None:
        for each in stops:
            signal.signal(each, signal.SIG_IGN)  # once: the processes are saving
        raise SignalException("stop", signal.Signals(number))

    stops = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        stops.append(hangup)
    with tempfile.TemporaryDirectory(prefix="nscaching-") as folder:
        os.environ[_LAUNCHER] = folder
        os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(_SAVING_SECONDS)
        threads = str(max(1, cores() // processes))
        for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
            os.environ.setdefault(name, threads)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=Path(folder).name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=max_restarts,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            signals_to_handle="",  # ours
        )
        for number in stops:
            signal.signal(number, stop)
        code = 0
        try:
            elastic_launch(config, sys.executable)("-m", module, *arguments)
        except SignalException as asked:
            code = 128 + int(asked.sigval)
        except ChildFailedError as failed:
            first = failed.get_first_failure()[1]
            print(
                f"A process of the run was lost (exit code {first.exitcode}), more often than "
                f"--max-restarts {max_restarts} allows; 'nscaching train --resume' continues from "
                "the last checkpoint.",
                file=sys.stderr,
            )
            code = 1
        told = [int(file.read_text()) for file in Path(folder).glob("exit-*")]
        return max([code, *told])


def end_worker(code: int) -> int:
    """Return the exit code of a process that ends; one that ends for good tells its launcher.

    The agent starts a group again if any of its processes fails, and must not after a mistake that
    a user made or a stop that was asked for: such a process ends with 0.
    """
    if _LAUNCHER not in os.environ or not is_worker() or code == LostPeers.exit_code:
        return code
    _verdict().write_text(str(code))
    return 0
