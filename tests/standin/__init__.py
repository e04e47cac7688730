"""The stand-in: a test double of TensorRT-LLM's command-line tools.

No TensorRT-LLM and no GPU can be had where these tests run. The stand-in takes the place of
`trtllm-build`, `trtllm-refit`, `trtllm-serve` and the conversion scripts of one named release. It
is strict about everything that is written down of that release in `tests/data/trtllm/facts`: flags,
choices, required inputs, checkpoint files. It compiles nothing and generates nothing: what it calls
a plan is a true header and filler. Whatever passed here has passed against a double, not a GPU.

It can be told to fail as the real tools do; see `toolchain.settings`. `install` puts it on this
machine, `image_files` gives the same files for a container image.
"""
