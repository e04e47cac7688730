"""The llama.cpp engine kind: one GGUF file, quantised here and served on the CPU by xllamacpp."""
