"""What fits what: TensorRT-LLM releases and their parts, engines and nodes."""
