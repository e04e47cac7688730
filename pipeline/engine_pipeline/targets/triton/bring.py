"""Talking a server into serving one generation, and having it say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.targets.triton.engine_models import ENGINE, ENTRY
from engine_pipeline.targets.triton.plan import MANAGED, Verb, plan_calls
from engine_pipeline.targets.triton.repository import ENGINE_KEY
from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.progress import Progress
    from engine_pipeline.targets.triton.client import TritonClient
    from engine_registry.digest import Digest

_PROMPT_TOKENS = 8
# Every model off, on, and on once more; a server that wants more does not come to rest.
_MOST_CALLS = 3 * len(MANAGED)
Loaded = dict[str, frozenset[int]]


def managed(client: TritonClient) -> Loaded:
    """Versions that are ready of the models that this kind of target loads."""
    return {name: found for name, found in client.ready().items() if name in MANAGED}


def bring(
    client: TritonClient,
    models: Sequence[str],
    generation: int,
    progress: Progress,
    *,
    entries_off: bool,
    replace: bool,
) -> None:
    """Have this generation of these models loaded, and nothing else of ours; see `plan`.

    Planned anew after each call, because a server also reloads ensembles by itself.

    Raises:
        EngineCIError: a load failed or did not do what it said.
    """
    ready = managed(client)
    for _ in range(_MOST_CALLS):
        calls = plan_calls(ready, models, generation, entries_off=entries_off, replace=replace)
        if not calls:
            return
        call = calls[0]
        progress.phase(call.verb.value, f"{call.model} on {client.url}")
        if call.verb is Verb.UNLOAD:
            client.unload(call.model, progress)
            ready = managed(client)
            continue
        client.load(call.model, progress)
        ready = managed(client)
        found = ready.get(call.model, frozenset())
        if found != {generation}:
            raise _apart(client, f"{call.model} {generation}", say_loaded({call.model: found}))
    wanted = dict.fromkeys(models, frozenset({generation}))
    raise _apart(client, say_loaded(wanted), say_loaded(ready))


def prove(
    client: TritonClient,
    models: Sequence[str],
    generation: int,
    engine: Digest,
    prompt: str,
    progress: Progress,
) -> None:
    """Raise unless the server says that it serves this engine, and answers a prompt."""
    apart = loaded_apart(client, models, generation, engine)
    if apart:
        raise _apart(client, *apart[0])
    if ENTRY in models:
        entry = ENTRY
        body: dict[str, object] = {
            "text_input": prompt,
            "max_tokens": _PROMPT_TOKENS,
            "bad_words": "",
            "stop_words": "",
            "stream": False,
        }
    else:
        entry, body = ENGINE, {"text_input": prompt, "sampling_param_max_tokens": _PROMPT_TOKENS}
    progress.phase("prompt", f"{entry} on {client.url}")
    answer = client.generate(entry, generation, body, progress)
    progress.note(f"{entry} answered {answer[:80]!r}")


def loaded_apart(
    client: TritonClient, models: Sequence[str], generation: int, engine: Digest
) -> list[tuple[str, str]]:
    """What the server says otherwise than it should: wanted and found."""
    found = []
    ready = managed(client)
    wanted = dict.fromkeys(models, frozenset({generation}))
    if ready != wanted:
        found.append((say_loaded(wanted), say_loaded(ready)))
    named = client.parameters(ENGINE, generation).get(ENGINE_KEY)
    if named != str(engine):
        found.append((f"engine {engine}", f"engine {named}" if named else "no engine named"))
    return found


def say_loaded(models: Mapping[str, frozenset[int]]) -> str:
    """`ensemble 12, tensorrt_llm 12`."""
    said = [f"{name} {','.join(map(str, sorted(models[name])))}" for name in sorted(models)]
    return ", ".join(item.strip() for item in said) or "nothing"


def _apart(client: TritonClient, wanted: str, found: str) -> Unavailable:
    return Unavailable(
        f"{client.url}: wanted loaded {wanted}, the server says {found}",
        hint=f"see that it was started with --model-repository={client.repository} and that no "
        "version policy is set, then deploy again",
        reference="triton-read-back-differs",
    )
