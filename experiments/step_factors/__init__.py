"""Factors that an experiment on complete steps can change; one module for each."""

from __future__ import annotations

from .channels_last import ChannelsLast
from .compiled import Compiled
from .cuda_graph import CudaGraph
from .cudnn_benchmark import CudnnBenchmark
from .deterministic import Deterministic
from .factor import StepFactor
from .kept_memory import KeptMemory
from .no_nnpack import NoNnpack
from .no_onednn import NoOneDnn
from .one_thread import OneThread
from .padded_batch import PaddedBatch
from .pauses import Pauses
from .priority import Priority
from .replayed_operators import ReplayedOperators
from .smaller_memory import SmallerMemory
from .split_batch import SplitBatch

_FACTORS: tuple[type[StepFactor], ...] = (
    KeptMemory,
    OneThread,
    NoOneDnn,
    NoNnpack,
    ChannelsLast,
    SplitBatch,
    PaddedBatch,
    Compiled,
    CudaGraph,
    ReplayedOperators,
    Pauses,
    Priority,
    SmallerMemory,
    CudnnBenchmark,
    Deterministic,
)
STEP_FACTORS = {factor.FACTS.name: factor for factor in _FACTORS}
