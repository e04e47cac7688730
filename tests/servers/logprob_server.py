"""A chat server that lists tokens, in the ways that servers of the field do, and tokenises chats.

Words are tokens, their numbers are their places in WORDS. It says the same to everybody; what it
can do is switched off field by field, so that a client's every way of doing without is seen.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

WORDS = ("<end>", "It", " is", " so", "<user>", "asked")
PROMPT = (4, 5)


@dataclass(slots=True)
class LogprobServer:
    """The server.

    Attributes:
        says: numbers of the tokens of its answer.
        lists: whether it gives log probabilities.
        refuses: fields that it answers 400 to.
        tokenises: `template` as llama.cpp's server does it, `messages` as vLLM's; None: not at all.
        takes_ids: whether a completion's prompt may be token numbers.
        prompt_tokens: as the usage says.
        logprob: of each of those tokens.
        older: it lists tokens as completions have it: parallel lists.
        status: of every answer.
        asked: every body, with its path.
    """

    says: tuple[int, ...] = (1, 2, 3, 0)
    lists: bool = True
    refuses: tuple[str, ...] = ()
    tokenises: str | None = "template"
    takes_ids: bool = True
    prompt_tokens: int | None = len(PROMPT)
    logprob: float | None = -0.1
    older: bool = False
    status: int = 200
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve on 127.0.0.1 while the block runs; gives the base URL."""
        app = web.Application()
        app.router.add_post("/{path:.*}", self._serve)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((request.path, body))
        if self.status != 200:
            return web.json_response({"error": "no"}, status=self.status)
        match request.path:
            case "/v1/chat/completions":
                return self._chat(body)
            case "/v1/completions" if self.takes_ids:
                return self._complete(body)
            case "/apply-template" if self.tokenises == "template":
                return web.json_response({"prompt": "<user>asked"})
            case "/tokenize" if self.tokenises in {"template", "messages"}:
                wanted = "content" if self.tokenises == "template" else "messages"
                return web.json_response({"tokens": list(PROMPT) if wanted in body else []})
        return web.json_response({"error": "no such thing"}, status=404)

    def _chat(self, body: dict[str, Any]) -> web.Response:
        if unknown := [name for name in self.refuses if name in body]:
            return web.json_response({"error": f"unknown field {unknown[0]}"}, status=400)
        choice: dict[str, Any] = {
            "message": {"content": "".join(WORDS[one] for one in self.says if one)},
            "finish_reason": "stop",
        }
        if self.lists and body.get("logprobs"):
            choice["logprobs"] = self._listed(self.says)
        usage = {} if self.prompt_tokens is None else {"prompt_tokens": self.prompt_tokens}
        return web.json_response({"choices": [choice], "usage": usage})

    def _complete(self, body: dict[str, Any]) -> web.Response:
        given = len(body["prompt"]) - len(PROMPT) if isinstance(body["prompt"], list) else 0
        choice: dict[str, Any] = {"text": "", "finish_reason": "length"}
        if self.lists:
            choice["logprobs"] = self._listed([self.says[given]])
        return web.json_response({"choices": [choice]})

    def _listed(self, numbers: Sequence[int]) -> dict[str, Any]:
        entries = [_entry(one, self.logprob) for one in numbers]
        if not self.older:
            return {"content": entries}
        return {
            "tokens": [one["token"] for one in entries],
            "token_logprobs": [one["logprob"] for one in entries],
            "top_logprobs": [
                {top["token"]: top["logprob"] for top in one["top_logprobs"]} for one in entries
            ],
        }


def _entry(number: int, logprob: float | None) -> dict[str, Any]:
    token = {"token": WORDS[number] if number else "", "id": number, "logprob": logprob}
    other = {"token": "other", "id": 99, "logprob": -2.4}
    return {**token, "top_logprobs": [token, other]}
