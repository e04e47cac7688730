"""Engine kind `trtllm-engine`: TensorRT-LLM plans, by releases that still have the builder."""
