"""Engine kind `trtllm-checkpoint`: pre-quantised checkpoints for TensorRT-LLM on PyTorch."""
