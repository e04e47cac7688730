"""The HTTP side of the stand-in's `trtllm-serve`: health, version, models, and streamed answers.

Answers come from the settings' `answers`, else they repeat what was asked: deterministic, and no
sign of any quality.
"""

import json
import re
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Fields of OpenAI's API and the server's own; anything else is refused, as the real one does.
_FIELDS = {
    "add_generation_prompt",
    "best_of",
    "chat_template",
    "chat_template_kwargs",
    "echo",
    "frequency_penalty",
    "ignore_eos",
    "include_stop_str_in_output",
    "length_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "presence_penalty",
    "prompt",
    "repetition_penalty",
    "response_format",
    "seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
}


def serve_forever(host, port, name, known, chosen):
    handler = type("Handler", (_Handler,), {"name": name, "known": known, "chosen": chosen})
    server = ThreadingHTTPServer((host, port), handler)
    server.daemon_threads = True
    # As Uvicorn does; the first process of a container would else not even hear it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"INFO:     Uvicorn running on http://{host}:{server.server_port}", flush=True)
    server.serve_forever()
    return 0


class _Handler(BaseHTTPRequestHandler):
    name = ""
    known = {}
    chosen = {}
    lock = threading.Lock()
    drained = []

    def log_message(self, *args):
        pass

    def do_GET(self):
        offered = " ".join(self.known["serve"]["endpoints"])
        if self.path == "/health" or (
            self.path == "/health_generate"
            and ("health_generate" in offered or "as 1.2" in offered)
        ):
            self.answer(200, b"")
        elif self.path == "/version":
            self.answer_json(200, {"version": self.known["version"]})
        elif self.path == "/v1/models":
            model = {"id": self.name, "object": "model", "created": 0, "owned_by": "tensorrt_llm"}
            self.answer_json(200, {"object": "list", "data": [model]})
        elif self.path == "/metrics":
            # A list of iterations, emptied by reading.
            with self.lock:
                taken, self.drained[:] = list(self.drained), []
            self.answer_json(200, taken)
        else:
            self.answer_json(404, {"detail": "Not Found"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            self.answer_json(404, {"detail": "Not Found"})
            return
        try:
            request = json.loads(body)
            strange = sorted(set(request) - _FIELDS)
        except ValueError as error:
            self.refuse(str(error))
            return
        if strange:
            self.refuse(f"Extra inputs are not permitted: {', '.join(strange)}")
            return
        chat = self.path.endswith("chat/completions")
        asked = request["messages"][-1]["content"] if chat else request["prompt"]
        words = self.reply(asked).split(" ")
        limit = request.get("max_completion_tokens") or request.get("max_tokens") or 16
        tokens = [word if i == 0 else f" {word}" for i, word in enumerate(words)][:limit]
        finish = "stop" if len(words) <= limit else "length"
        with self.lock:
            self.drained.append({"iter": len(self.drained), "numActiveRequests": 1})
        usage = {
            "prompt_tokens": len(str(asked).split()),
            "completion_tokens": len(tokens),
            "total_tokens": len(str(asked).split()) + len(tokens),
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        if request.get("stream"):
            self.stream(request, tokens, finish, usage, chat)
        else:
            text = "".join(tokens)
            inside = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choice = {"index": 0, "finish_reason": finish} | inside
            self.answer_json(200, self.envelope(chat, [choice]) | {"usage": usage})

    def reply(self, asked):
        for pattern, answer in self.chosen["answers"]:
            if re.search(pattern, asked):
                return answer
        return f"The stand-in heard: {asked}"

    def stream(self, request, tokens, finish, usage, chat):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        gap = self.chosen.get("token_s", 0)
        for index, token in enumerate(tokens):
            time.sleep(gap)
            delta = {"role": "assistant", "content": token} if index == 0 else {"content": token}
            inside = {"delta": delta} if chat else {"text": token}
            self.event(self.envelope(chat, [{"index": 0, "finish_reason": None} | inside]))
        inside = {"delta": {}} if chat else {"text": ""}
        self.event(self.envelope(chat, [{"index": 0, "finish_reason": finish} | inside]))
        options = request.get("stream_options") or {}
        if options.get("include_usage", True):
            self.event(self.envelope(chat, []) | {"usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def envelope(self, chat, choices):
        kind = "chat.completion.chunk" if chat else "text_completion"
        return {"id": "stand-in", "object": kind, "created": 0, "model": self.name} | {
            "choices": choices
        }

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def refuse(self, text):
        self.answer_json(400, {"object": "error", "message": text, "type": "BadRequestError"})

    def answer_json(self, status, value):
        self.answer(status, json.dumps(value).encode(), "application/json")

    def answer(self, status, body, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
