"""A chat server that tells its chat template and tokenizer, as llama.cpp's does, as a process.

Run by its path: `python template_server.py --port PORT --says JSON`. One character is one token.
What it says is by the words of the last message; where it knows two answers it gives them in turn.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from aiohttp import web

MARKS = {"chatml": ("<|im_start|>{role}\n", "<|im_end|>\n"), "llama": ("[INST] ", " [/INST]")}


class TemplateServer:
    """The server.

    Args:
        says: answers by question; a list is given in turn.
        marks: which template it has.
        shows_tools: whether that template writes tools out.
    """

    def __init__(self, says: dict[str, Any], marks: str, shows_tools: bool) -> None:
        self._says = says
        self._open, self._close = MARKS[marks]
        self._shows_tools = shows_tools
        self._asked: dict[str, int] = {}

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_post("/apply-template", self._apply)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    def render(self, body: dict[str, Any]) -> str:
        """A chat after the template."""
        tools = json.dumps(body["tools"]) if self._shows_tools and body.get("tools") else ""
        return tools + "".join(
            self._open.format(role=one["role"]) + one.get("content", "") + self._close
            for one in body["messages"]
        )

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _apply(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": self.render(await request.json())})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        text = body["content"] if "content" in body else self.render(body)
        whole = [1] if text == "<|im_start|>" else [ord(char) for char in text]
        return web.json_response({"tokens": whole})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        question = body["messages"][-1]["content"]
        said = self._says.get(question, "It is so.")
        if isinstance(said, list):
            turn = self._asked[question] = self._asked.get(question, -1) + 1
            said = said[turn % len(said)]
        choice = {"message": {"content": said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(self.render(body))}
        return web.json_response({"choices": [choice], "usage": usage})


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--says", type=json.loads, default={})
    parser.add_argument("--marks", default="chatml")
    parser.add_argument("--hides-tools", action="store_true")
    options = parser.parse_args()
    server = TemplateServer(options.says, options.marks, not options.hides_tools)
    web.run_app(server.app(), host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
