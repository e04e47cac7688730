"""What fits what: TensorRT-LLM releases and their parts, engines and the nodes that shall load them."""
