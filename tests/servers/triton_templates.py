"""`all_models` as a serving image has it: same layout and placeholders, written for the tests.

The real configs list forty tensors more; what matters here is where placeholders stand, within
quotes and outside, and which models there are.
"""

from __future__ import annotations

from pathlib import Path

_PYTHON = "# what the image's model would do\n"

PREPROCESSING = """\
# a comment with an "odd quote and a ${placeholder_in_a_comment}
name: "preprocessing"
backend: "python"
max_batch_size: ${triton_max_batch_size}
dynamic_batching {
    preferred_batch_size: [ ${triton_max_batch_size} ]
    max_queue_delay_microseconds: ${max_queue_delay_microseconds}
    default_queue_policy: { max_queue_size: ${max_queue_size} }
}
input [ { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] } ]
parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
parameters { key: "add_special_tokens" value: { string_value: "${add_special_tokens}" } }
instance_group [ { count: ${preprocessing_instance_count} kind: KIND_CPU } ]
"""
TENSORRT_LLM = """\
name: "tensorrt_llm"
backend: "${triton_backend}"
max_batch_size: ${triton_max_batch_size}
model_transaction_policy {
  decoupled: ${decoupled_mode}
}
dynamic_batching {
    preferred_batch_size: [ ${triton_max_batch_size} ]
    max_queue_delay_microseconds: ${max_queue_delay_microseconds}
    default_queue_policy: { max_queue_size: ${max_queue_size} }
}
input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
  { name: "encoder_input_features" data_type: ${encoder_input_features_data_type} dims: [ -1 ] },
  { name: "prompt_embedding_table" data_type: ${prompt_embedding_table_data_type} dims: [ -1, -1 ] }
]
output [
  { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] },
  { name: "context_logits" data_type: ${logits_datatype} dims: [ -1, -1 ] }
]
instance_group [ { count: 1 kind : KIND_CPU } ]
parameters: { key: "max_beam_width" value: { string_value: "${max_beam_width}" } }
parameters: { key: "gpt_model_type" value: { string_value: "${batching_strategy}" } }
parameters: { key: "gpt_model_path" value: { string_value: "${engine_dir}" } }
parameters: {
  key: "kv_cache_free_gpu_mem_fraction"
  value: { string_value: "${kv_cache_free_gpu_mem_fraction}" }
}
parameters: { key: "enable_kv_cache_reuse" value: { string_value: "${enable_kv_cache_reuse}" } }
parameters: { key: "exclude_input_in_output" value: { string_value: "${exclude_input_in_output}" } }
parameters: { key: "gpu_device_ids" value: { string_value: "${gpu_device_ids}" } }
parameters: { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
"""
POSTPROCESSING = """\
name: "postprocessing"
backend: "python"
max_batch_size: ${triton_max_batch_size}
dynamic_batching {}
input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] } ]
parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
parameters { key: "skip_special_tokens" value: { string_value: "${skip_special_tokens}" } }
instance_group [ { count: ${postprocessing_instance_count} kind: KIND_CPU } ]
"""
_TEXT_INPUTS = """\
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "bad_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "context_logits" data_type: ${logits_datatype} dims: [ -1, -1 ] }
]
"""
ENSEMBLE = (
    """\
name: "ensemble"
platform: "ensemble"
max_batch_size: ${triton_max_batch_size}
"""
    + _TEXT_INPUTS
    + """\
ensemble_scheduling {
  step [
    {
      model_name: "preprocessing"
      model_version: -1
      input_map { key: "QUERY" value: "text_input" }
      output_map { key: "INPUT_ID" value: "_INPUT_ID" }
    },
    {
      model_name: "tensorrt_llm"
      model_version: -1
      input_map { key: "input_ids" value: "_INPUT_ID" },
      output_map { key: "output_ids" value: "_TOKENS_BATCH" }
    },
    {
      model_name: "postprocessing"
      model_version: -1
      input_map { key: "TOKENS_BATCH" value: "_TOKENS_BATCH" }
      output_map { key: "OUTPUT" value: "text_output" }
    }
  ]
}
"""
)
BLS = (
    """\
name: "tensorrt_llm_bls"
backend: "python"
max_batch_size: ${triton_max_batch_size}
model_transaction_policy {
  decoupled: ${decoupled_mode}
}
"""
    + _TEXT_INPUTS
    + """\
parameters: { key: "accumulate_tokens" value: { string_value: "${accumulate_tokens}" } }
parameters: { key: "tensorrt_llm_model_name" value: { string_value: "${tensorrt_llm_model_name}" } }
instance_group [ { count: ${bls_instance_count} kind : KIND_CPU } ]
"""
)
LLMAPI = """\
name: "tensorrt_llm"
backend: "python"
instance_group [ { count: 1 kind : KIND_CPU } ]
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "streaming" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "sampling_param_max_tokens" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [-1] } ]
"""


def write_templates(root: Path) -> Path:
    """`root/all_models`, whole."""
    place = root / "all_models"
    engine = place / "inflight_batcher_llm"
    for model, config, files in (
        ("preprocessing", PREPROCESSING, {"1/model.py": _PYTHON}),
        ("tensorrt_llm", TENSORRT_LLM, {"1/model.py": _PYTHON}),
        ("postprocessing", POSTPROCESSING, {"1/model.py": _PYTHON}),
        ("ensemble", ENSEMBLE, {}),
        ("tensorrt_llm_bls", BLS, {"1/model.py": _PYTHON, "1/lib/decode.py": _PYTHON}),
    ):
        _write(engine / model, config, files)
    _write(
        place / "llmapi" / "tensorrt_llm",
        LLMAPI,
        {"1/model.py": _PYTHON, "1/helpers.py": _PYTHON, "1/model.yaml": "model: some/example\n"},
    )
    return place


def _write(place: Path, config: str, files: dict[str, str]) -> None:
    (place / "1").mkdir(parents=True)
    (place / "config.pbtxt").write_text(config)
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
