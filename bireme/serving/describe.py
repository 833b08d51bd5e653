"""What the protocol says about models: metadata, configuration and statistics, as dictionaries.

REST sends them as they are, and gRPC's messages have the same fields.
"""

from __future__ import annotations

from typing import Any

from bireme.serving.repository import Repository
from bireme.serving.signature import Field
from bireme.serving.statistics import Duration
from bireme.serving.version import Version

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "parameters",
              "schedule_policy", "statistics")  # fmt: skip
# As Triton's model_config.proto calls the protocol's types.
CONFIG_TYPES = {"BYTES": "TYPE_STRING"}


def server_metadata() -> dict[str, Any]:
    """The server's name, version and extensions."""
    from bireme import __version__

    return {"name": "bireme", "version": __version__, "extensions": list(EXTENSIONS)}


def model_metadata(repository: Repository, version: Version) -> dict[str, Any]:
    """Names, types and shapes of a model's inputs and outputs."""

    def tensors(fields: tuple[Field, ...]) -> list[dict[str, Any]]:
        return [{"name": f.name, "datatype": f.datatype, "shape": list(f.shape)} for f in fields]

    return {
        "name": version.name,
        "versions": repository.versions(version.name),
        "platform": version.platform,
        "inputs": tensors(version.signature.inputs),
        "outputs": tensors(version.signature.outputs),
    }


def model_config(version: Version) -> dict[str, Any]:
    """A model's configuration in Triton's words."""
    batched = version.signature.batched

    def tensors(fields: tuple[Field, ...]) -> list[dict[str, Any]]:
        return [
            {
                "name": f.name,
                "data_type": CONFIG_TYPES.get(f.datatype, f"TYPE_{f.datatype}"),
                "dims": list(f.shape[1:] if batched else f.shape),
            }
            for f in fields
        ]

    config: dict[str, Any] = {
        "name": version.name,
        "platform": version.platform,
        "backend": "bireme",
        "max_batch_size": version.sizes[-1] if batched else 0,
        "input": tensors(version.signature.inputs),
        "output": tensors(version.signature.outputs),
    }
    if batched:
        config["dynamic_batching"] = {
            "preferred_batch_size": list(version.sizes),
            "max_queue_delay_microseconds": int(version.options.delay * 1e6),
        }
    return config


def statistics(version: Version) -> dict[str, Any]:
    """A model's counts and times."""
    s = version.statistics

    def of(duration: Duration) -> dict[str, int]:
        return {"count": duration.count, "ns": duration.ns}

    with s.lock:
        stages = ("compute_input", "compute_infer", "compute_output")
        return {
            "name": version.name,
            "version": version.number,
            "last_inference": s.last_ms,
            "inference_count": s.rows,
            "execution_count": s.executions,
            "inference_stats": {
                "success": of(s.success),
                "fail": of(s.fail),
                "queue": of(s.queue),
                "compute_input": of(s.compute_input),
                "compute_infer": of(s.compute_infer),
                "compute_output": of(s.compute_output),
            },
            "batch_stats": [
                {
                    "batch_size": size,
                    **{stage: of(d) for stage, d in zip(stages, times, strict=True)},
                }
                for size, times in sorted(s.batches.items())
            ],
        }
