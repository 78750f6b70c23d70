"""A GPU where there is none: its tensors hold numbers of this processor, and nothing but copies takes them back.

It says what a GPU would: that numbers of two devices are mixed, that an array is asked of a tensor that has none here,
and how often the host waits for it. What it cannot say is whether CUDA's own kernels are right, and how fast they are.
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

_GPU = torch.device("cuda", 0)
_ATEN = torch.ops.aten
# After which the host goes on by numbers of the device: it has waited for it.
_WAITS = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "bincount"}
_BY_PLACES = {"index", "index_put", "index_put_", "_index_put_impl_"}


class OnGpu(torch.Tensor):
    """A tensor whose numbers lie on the pretended GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="meta",  # of which torch makes no guard
        )

    def __init__(self, inner):
        self.inner = inner

    device = property(lambda self: _GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def tolist(self):
        return self.cpu().tolist()

    def cpu(self):
        return self.to("cpu")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} of a tensor of the GPU after the test")


class PretendedGpu(TorchDispatchMode):
    """Runs what is asked of the GPU.

    Attributes
    ----------
    waits
        How often the host has waited for it.
    calls
        Of functions with tensors of it; a graph's are one.
    """

    def __init__(self):
        super().__init__()
        self.waits = self.calls = 0
        self._graph: Graph | None = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        every = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        there = [t for t in every if isinstance(t, OnGpu)]
        here = [t for t in every if not isinstance(t, OnGpu)]
        name, device = func._schema.name.removeprefix("aten::"), kwargs.get("device")
        pinned = kwargs.pop("pin_memory", None)
        on_gpu = bool(there) if device is None else device.type != "cpu"
        if on_gpu and device is not None:
            kwargs["device"] = torch.device("cpu")
            if pinned:
                raise RuntimeError("only memory of the host can be pinned")
        between = name in ("copy_", "_to_copy")
        if name in _BY_PLACES:  # which torch takes from the processor
            here = [t for t in here if all(t is not place for place in args[1])]
        if there:
            self._told(name, args, here, between=between, on_gpu=on_gpu)
        wrapped = {id(t.inner): t for t in there}
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, OnGpu) else t, (args, kwargs))
        results = func(*args, **kwargs)
        if self._graph is not None and on_gpu:
            self._graph.steps.append((func, args, kwargs, results))

        def result(value):
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in wrapped:
                return wrapped[id(value)]
            return OnGpu(value) if on_gpu else value

        return tree_map(result, results)

    def _told(self, name, args, here, *, between, on_gpu):
        """Count a call; say what a GPU would not take."""
        self.calls += self._graph is None
        if not between and any(t.dim() for t in here):
            raise RuntimeError(f"{name}: tensors of the GPU and of the processor are mixed")
        back = between and not (on_gpu if name == "_to_copy" else isinstance(args[0], OnGpu))
        mask = name in _BY_PLACES and any(t is not None and t.dtype == torch.bool for t in args[1])
        waits = back or mask or name in _WAITS
        self.waits += waits
        if self._graph is not None and (waits or (between and here)):
            raise RuntimeError(f"{name}: not permitted when a stream is capturing")

    @contextlib.contextmanager
    def graph(self, graph):
        """Keep in a graph what is called within."""
        self._graph = graph
        try:
            yield
        finally:
            self._graph = None

    def replayed(self, graph):
        """Do what a graph keeps, with the memory that it knows, and nothing of what Python would do besides."""
        self.calls += 1
        for func, args, kwargs, results in graph.steps:
            again = func(*args, **kwargs)
            known = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
            if results.untyped_storage().data_ptr() not in known:  # no view, and not in place
                results.copy_(again)


class Graph:
    """What a graph is made of: calls in their order, and the memory of what they return."""

    def __init__(self):
        self.steps = []


@contextlib.contextmanager
def pretended_gpu(monkeypatch):
    """Let torch see a GPU within."""
    of_data, gpu = torch.tensor, PretendedGpu()

    class Stream:
        def synchronize(self):
            gpu.waits += 1

        def wait_stream(self, other):
            pass

    class CudaGraph(Graph):
        def replay(self):
            gpu.replayed(self)

    def tensor(data, *, device=None, **how):
        """Return a tensor of data by the way of the processor, as torch has no guard of the device."""
        return of_data(data, **how).to("cpu" if device is None else _GPU)

    def within(*which):
        return contextlib.nullcontext()

    with monkeypatch.context() as patch:
        patch.setattr(torch, "tensor", tensor)
        for name, pretended in {
            "_lazy_init": lambda: None,
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_stream": lambda device=None: Stream(),
            "Stream": Stream,
            "stream": within,
            "device": within,
            "CUDAGraph": CudaGraph,
            "graph": gpu.graph,
        }.items():
            patch.setattr(torch.cuda, name, pretended)
        with gpu:
            yield gpu
