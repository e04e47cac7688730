"""Engine kind `trtllm-checkpoint`: a pre-quantised checkpoint for TensorRT-LLM's PyTorch backend."""
