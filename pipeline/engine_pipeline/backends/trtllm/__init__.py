"""Engine kind `trtllm-engine`: TensorRT-LLM plans, from the releases that still have the builder."""
