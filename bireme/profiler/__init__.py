"""What a program spends its time on: steps, named spans, compilations, memory."""

from bireme.core.stats import (
    CompileEvent,
    RecompileWarning,
    compile_count,
    compile_events,
    count_compiles,
)
from bireme.profiler.events import RecordEvent, export_chrome_tracing, load_profiler_result
from bireme.profiler.memory import memory_figures
from bireme.profiler.profiler import (
    Profiler,
    ProfilerState,
    ProfilerTarget,
    SortedKeys,
    SummaryView,
    make_scheduler,
)
from bireme.profiler.programs import ProgramRuns, program_report, programs
from bireme.profiler.protobuf import export_protobuf
from bireme.profiler.tables import compile_report

__all__ = [
    "CompileEvent",
    "Profiler",
    "ProfilerState",
    "ProfilerTarget",
    "ProgramRuns",
    "RecompileWarning",
    "RecordEvent",
    "SortedKeys",
    "SummaryView",
    "compile_count",
    "compile_events",
    "compile_report",
    "count_compiles",
    "export_chrome_tracing",
    "export_protobuf",
    "load_profiler_result",
    "make_scheduler",
    "memory_figures",
    "program_report",
    "programs",
]
