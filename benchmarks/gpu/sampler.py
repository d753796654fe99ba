# pyright: reportMissingImports=false
"""What the GPU does while something is measured: its utilization and memory, by NVML. Nothing where there is no GPU."""

import contextlib
import os
import statistics
import threading
from types import TracebackType
from typing import Any

INTERVAL_SECONDS = 0.2


def _handle() -> Any:
    """The first GPU that this process may see; None without NVML or a GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        return pynvml.nvmlDeviceGetHandleByIndex(int(visible or 0))
    except Exception:  # no module, no driver library, no device
        return None


def description() -> dict[str, str]:
    if (handle := _handle()) is None:
        return {}
    import pynvml

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30
    return {
        "gpu": f"{pynvml.nvmlDeviceGetName(handle)}, {memory:.0f} GiB, driver {pynvml.nvmlSystemGetDriverVersion()}"
    }


class Sampler:
    """Samples in a thread between enter and exit."""

    def __init__(self) -> None:
        self._busy: list[float] = []
        self._memory: list[float] = []
        self._watts: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def means(self) -> dict[str, float]:
        """Share of the time in which a kernel ran, in percent; GiB in use; watts."""
        if not self._busy:
            return {}
        series = {"gpu_busy_percent": self._busy, "gpu_memory_gib": self._memory, "gpu_watts": self._watts}
        return {name: statistics.mean(values) for name, values in series.items()}

    def _run(self) -> None:
        if (handle := _handle()) is None:
            return
        import pynvml

        while not self._over.wait(INTERVAL_SECONDS):
            with contextlib.suppress(pynvml.NVMLError):
                self._busy.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                self._memory.append(pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30)
                self._watts.append(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
