"""Serving saved models: `paddle.inference`.

    config = inference.Config("det/inference.pdmodel", "det/inference.pdiparams")
    predictor = inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(image)
    predictor.run()
    scores = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()

Reads Paddle's own files (`.pdmodel`, `__model__`, PIR's `inference.json`) and what
`paddle.jit.save` wrote.
"""

from bireme.inference.config import Config
from bireme.inference.handle import Tensor
from bireme.inference.kinds import (
    DataType,
    PlaceType,
    PrecisionType,
    get_num_bytes_of_data_type,
    get_trt_compile_version,
    get_trt_runtime_version,
    get_version,
)
from bireme.inference.mixed import convert_to_mixed_precision
from bireme.inference.predictor import Predictor, PredictorPool, create_predictor

__all__ = [
    "Config",
    "DataType",
    "PlaceType",
    "PrecisionType",
    "Predictor",
    "PredictorPool",
    "Tensor",
    "convert_to_mixed_precision",
    "create_predictor",
    "get_num_bytes_of_data_type",
    "get_trt_compile_version",
    "get_trt_runtime_version",
    "get_version",
]
