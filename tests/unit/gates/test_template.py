"""The template guard: what it wants, what it catches, and what it does where little is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.suite import GoldenChat, Reference, Suite, TemplateGoldens
from engine_pipeline.gates.suite_file import load_suite
from engine_pipeline.gates.template import SeenChat, TemplateResult, judge_template
from engine_pipeline.gates.template_ask import STARTING_CHATS, guard_template, record_template
from engine_pipeline.gates.template_file import TEMPLATE_FILE, load_template, template_text
from engine_registry.errors import CouldNotJudge, InvalidInput
from tests.servers.logprob_server import PROMPT, LogprobServer

REFERENCE = Reference(spec="m/t-fp16", note="by hand")
CHAT = GoldenChat.model_validate(
    {
        "id": "one",
        "messages": [{"role": "user", "content": "asked"}],
        "prompt": "<user>asked",
        "tokens": list(PROMPT),
    }
)
GOLDENS = TemplateGoldens(
    schema_version=1, reference=REFERENCE, special_tokens={"<user>": 4}, chats=(CHAT,)
)


def judged(special: tuple[int, ...] | None = (4,), **seen: Any) -> TemplateResult:
    return judge_template(GOLDENS, {"one": SeenChat(**seen)}, {"<user>": special})


def asked(server: LogprobServer, goldens: TemplateGoldens = GOLDENS) -> TemplateResult:
    async def run() -> TemplateResult | None:
        async with server.listening() as url:
            endpoint = Endpoint(base_url=url, model="m")
            return await guard_template(endpoint, goldens, timeout_s=10)

    result = asyncio.run(run())
    assert result is not None
    return result


def recorded(server: LogprobServer, known: TemplateGoldens | None = None) -> TemplateGoldens:
    async def run() -> TemplateGoldens:
        async with server.listening() as url:
            endpoint = Endpoint(base_url=url, model="m")
            return await record_template(endpoint, known, REFERENCE, timeout_s=10)

    return asyncio.run(run())


def test_the_prompt_that_was_recorded_passes():
    result = judged(prompt="<user>asked", tokens=PROMPT, size=2)
    assert result.outcome is Outcome.PASSED
    assert result.special_tokens == {}


def test_another_prompt_fails_and_is_shown_from_where_it_differs():
    result = judged(prompt="[INST] asked [/INST]", tokens=(1, 2, 3))
    assert result.outcome is Outcome.FAILED
    assert "from character 0" in result.reason
    assert "[INST]" in result.reason


def test_the_same_prompt_in_other_tokens_fails():
    result = judged(prompt="<user>asked", tokens=(4, 9, 9))
    assert result.outcome is Outcome.FAILED
    assert "from number 1: want [4, 5], got [4, 9, 9] (of 2 and 3)" in result.reason


def test_a_special_token_that_falls_apart_fails_though_every_chat_passes():
    result = judged(special=(60, 61, 62), prompt="<user>asked", tokens=PROMPT)
    assert result.outcome is Outcome.FAILED
    assert "'<user>' is [60, 61, 62], want the one token 4" in result.reason


def test_a_server_that_tells_only_its_usage_is_held_to_the_number_of_tokens():
    assert judged(special=None, size=2).outcome is Outcome.PASSED
    assert "as far as the numbers" in judged(special=None, size=2).reason
    assert judged(special=None, size=9).outcome is Outcome.FAILED


def test_a_prompt_whose_usage_says_otherwise_fails_whatever_else_the_server_tells():
    assert judged(prompt="<user>asked", tokens=PROMPT, size=7).outcome is Outcome.FAILED


def test_a_server_that_tells_nothing_is_not_measured_and_says_so():
    result = judged(special=None)
    assert result.outcome is Outcome.SKIPPED
    assert "not measured" in result.reason


def test_a_chat_without_an_answer_could_not_be_judged():
    assert judged(special=None, error="HTTP 503").outcome is Outcome.ERRORED


@pytest.mark.parametrize("way", ["template", "messages"])
def test_either_kind_of_server_is_asked_for_its_tokens(way):
    goldens = GOLDENS.model_copy(update={"special_tokens": {}})
    assert asked(LogprobServer(tokenises=way), goldens).outcome is Outcome.PASSED
    other = goldens.model_copy(update={"chats": (CHAT.model_copy(update={"tokens": (4, 7)}),)})
    assert asked(LogprobServer(tokenises=way), other).outcome is Outcome.FAILED


def test_a_server_without_a_tokeniser_is_asked_for_its_usage():
    assert asked(LogprobServer(tokenises=None)).outcome is Outcome.PASSED
    assert asked(LogprobServer(tokenises=None, prompt_tokens=3)).outcome is Outcome.FAILED
    assert asked(LogprobServer(tokenises=None, prompt_tokens=None)).outcome is Outcome.SKIPPED


def test_what_is_recorded_passes_and_can_be_written_and_read_back(tmp_path):
    goldens = recorded(LogprobServer())
    assert [chat.id for chat in goldens.chats] == [name for name, _ in STARTING_CHATS]
    (tmp_path / TEMPLATE_FILE).write_text(template_text(goldens))
    assert load_template(tmp_path) == goldens
    without = goldens.model_copy(update={"special_tokens": {}})
    assert asked(LogprobServer(), without).outcome is Outcome.PASSED


def test_texts_with_every_kind_of_character_survive_the_file(tmp_path):
    text = 'a "b" \\ \n\t# : {x} é 東 👩‍💻 \u2028 \x7f'
    chat = CHAT.model_copy(update={"prompt": text, "tokens": tuple(range(40))})
    tool = {"type": "function", "function": {"name": "f", "parameters": {"é": [1, None, True]}}}
    goldens = GOLDENS.model_copy(update={"chats": (chat.model_copy(update={"tools": (tool,)}),)})
    (tmp_path / TEMPLATE_FILE).write_text(template_text(goldens))
    assert load_template(tmp_path) == goldens


def test_recording_asks_the_chats_that_are_there_already():
    assert recorded(LogprobServer(), GOLDENS).chats == (CHAT,)


@pytest.mark.parametrize("server", [LogprobServer(tokenises=None), LogprobServer(prompt_tokens=9)])
def test_what_cannot_be_known_for_sure_is_not_recorded(server):
    with pytest.raises(CouldNotJudge) as raised:
        recorded(server)
    assert raised.value.name == "template-not-told"


def suite_dir(tmp_path):
    folder = tmp_path / "core"
    folder.mkdir()
    (folder / "suite.yaml").write_text(
        "schema_version: 1\nname: core\nowner: x\ndescription: x\nmodel: m\n"
        "reference: {spec: m/t, note: x}\n"
        "sampling: {temperature: 0.0, top_p: 1.0, seed: 7, max_tokens: 8}\ncases: [cases.yaml]\n"
    )
    (folder / "cases.yaml").write_text(
        "cases:\n  - {id: one, tags: [t], messages: [{role: user, content: a}], "
        "checks: [{kind: contains, all_of: [b]}]}\n"
    )
    return folder


def test_a_suites_digest_covers_its_template_and_is_what_it_was_without_one(tmp_path):
    folder = suite_dir(tmp_path)
    plain = load_suite(tmp_path, "core")
    assert plain.template is None
    fields = plain.model_dump(mode="json", exclude={"template"})
    assert Suite.model_validate(fields).digest == plain.digest
    (folder / TEMPLATE_FILE).write_text(template_text(GOLDENS))
    with_template = load_suite(tmp_path, "core")
    assert with_template.template == GOLDENS
    assert with_template.digest != plain.digest


def test_a_file_with_one_chat_twice_is_refused(tmp_path):
    twice = GOLDENS.model_copy(update={"chats": (CHAT, CHAT)})
    (tmp_path / TEMPLATE_FILE).write_text(template_text(twice))
    with pytest.raises(InvalidInput, match="chat ids given twice: one"):
        load_template(tmp_path)


def test_a_new_recording_asks_a_chat_with_tools_and_the_server_is_given_them():
    server = LogprobServer()
    goldens = recorded(server)
    (chat,) = [one for one in goldens.chats if one.tools]
    assert chat.id == "tools"
    given = [(path, body["tools"]) for path, body in server.asked if body.get("tools")]
    assert {path for path, _ in given} == {"/apply-template", "/v1/chat/completions"}
    assert all(tools == list(chat.tools) for _, tools in given)


def test_a_schema_that_is_written_otherwise_fails_the_guard():
    tool = {"type": "function", "function": {"name": "get_weather"}}
    chat = CHAT.model_copy(update={"tools": (tool,), "prompt": '<tool>{"name": "get_weather"}'})
    goldens = GOLDENS.model_copy(update={"chats": (chat,)})
    seen = {"one": SeenChat(prompt="<tool>get_weather", tokens=PROMPT)}
    result = judge_template(goldens, seen, {})
    assert result.outcome is Outcome.FAILED
    assert "differs from character 6" in result.reason


def test_a_chat_with_calls_and_results_of_tools_is_written_and_read_back(tmp_path):
    call = {"id": "c1", "function": {"name": "get_weather", "arguments": '{"place": "Paris"}'}}
    messages = [
        {"role": "user", "content": "asked"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ]
    chat = GoldenChat.model_validate({"id": "two", "messages": messages, "tokens": [4]})
    goldens = GOLDENS.model_copy(update={"chats": (chat,)})
    (tmp_path / TEMPLATE_FILE).write_text(template_text(goldens))
    assert load_template(tmp_path) == goldens
