"""Checks that are functions of installed packages: found, pinned, run in processes of their own.

A suite may name code only where the package itself says that it is a check, in its own metadata:

    [project.entry-points."engine_ci.checks"]
    fees = "billing_checks.fees:names_the_fee"

so a case file cannot have any other function called with an answer, such as one that runs it as a
command. The file that would be imported must be the one that the package installed: a folder of the
same name in the working directory is refused. Its digest is in the report.

    def names_the_fee(answer, **options):
        '''`answer` has text, finish_reason, tool_calls (name, arguments), case, tags.'''
        return None if options["fee"] in answer["text"] else f"want {options['fee']} in it"

None or True: nothing is wrong. A text: what is. False: something is. Anything else, an exception or
no answer in time is trouble with the check: errored, not failed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.check_code import CheckCode
from engine_pipeline.gates.check_kinds import Python
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec

    from engine_pipeline.gates.suite import Suite

GROUP = "engine_ci.checks"
TIMEOUT_S = 30.0
_WORKER = Path(__file__).with_name("python_check_worker.py")
_MAX_ANSWER_BYTES = 1 << 20


def resolve_checks(suite: Suite) -> dict[str, CheckCode]:
    """The code of every `python` check of a suite, by its entry point.

    Raises:
        NotFound: no installed package declares it.
        InvalidInput: another file would be imported, or it is not the one that the check names.
    """
    found: dict[str, CheckCode] = {}
    for case in suite.cases:
        for check in case.checks:
            if not isinstance(check, Python):
                continue
            code = found.get(check.entry_point) or _resolved(check.entry_point)
            if check.code is not None and check.code != code.code:
                raise InvalidInput(
                    f"case {case.id}: {check.entry_point} is {code.code.short} in "
                    f"{code.distribution} {code.version}, the suite wants {check.code.short}",
                    hint="install the version that was meant, or look at the new one and change "
                    "`code` in the suite",
                    reference="python-check-other-code",
                )
            found[check.entry_point] = code
    return found


def _resolved(entry_point: str) -> CheckCode:
    declared = [
        point
        for point in metadata.entry_points(group=GROUP)
        if point.value.replace(" ", "") == entry_point and point.dist is not None
    ]
    if not declared:
        raise NotFound(
            f"no installed package declares {entry_point} as a check",
            hint=f"install the package; it names its checks under the entry points {GROUP}",
            reference="python-check-not-found",
        )
    dist = declared[0].dist
    assert dist is not None
    module = entry_point.partition(":")[0]
    path = _file_of(module)
    editable = _is_editable(dist)
    installed = {Path(str(dist.locate_file(file))).resolve() for file in dist.files or ()}
    if path is None or (path not in installed and not editable):
        where = "nowhere" if path is None else f"from {path}"
        raise InvalidInput(
            f"{module} of {dist.name} {dist.version} would be imported {where}, which that package "
            "did not install",
            hint="run from another directory, or install the package again",
            reference="python-check-elsewhere",
        )
    return CheckCode(
        entry_point=entry_point,
        distribution=dist.name,
        version=dist.version,
        code=Digest.of(path.read_bytes()),
        editable=editable,
        path=str(path),
    )


def _file_of(module: str) -> Path | None:
    """The file that importing `module` would run last; nothing is run to find it."""
    first, *rest = module.split(".")
    spec: ModuleSpec | None = importlib.util.find_spec(first)
    name = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin).resolve()


def _is_editable(dist: metadata.Distribution) -> bool:
    try:
        url = json.loads(dist.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(url.get("dir_info", {}).get("editable"))


async def run_check(
    code: CheckCode,
    options: Mapping[str, Any],
    answer: Mapping[str, Any],
    *,
    timeout_s: float = TIMEOUT_S,
) -> tuple[bool | None, str]:
    """Whether the function finds nothing wrong, None if it could not say, and the reason."""
    request = {
        "entry_point": code.entry_point,
        "path": code.path,
        "options": options,
        "answer": answer,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the working directory is not where modules come from
        str(_WORKER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, _ = await process.communicate(json.dumps(request).encode())
    except TimeoutError:
        return None, f"{code.entry_point} has not answered within {timeout_s:g} s"
    finally:
        # With whatever it started; a process that ended is no longer a group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    try:
        said = json.loads(out[:_MAX_ANSWER_BYTES])
        passed, reason = said["passed"], str(said["reason"])[:1000]
    except (ValueError, KeyError, TypeError):
        return None, f"{code.entry_point} ended with code {process.returncode} and said nothing"
    return passed, reason
