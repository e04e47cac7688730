"""Target `triton`: a Triton Inference Server that is told explicitly what to load."""
