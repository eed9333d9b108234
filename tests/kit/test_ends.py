"""How a tool may end, and what Temporal then records."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.conftest import Tasks
from workflows.kit.contract import BUG, JSONRPC_ERROR, MAX_PAYLOAD_BYTES, TOOL_ERROR

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("mode", "result"),
    [
        ("text", {"content": [{"type": "text", "text": "done"}]}),
        ("heard_child", {"content": [{"type": "text", "text": "heard"}]}),
    ],
)
async def test_a_returned_value_is_a_call_tool_result(tasks: Tasks, mode: str, result: Any) -> None:
    assert await (await tasks.start("kit_end", mode)).result() == result


async def test_the_view_of_a_run_that_is_done_says_so(tasks: Tasks) -> None:
    run = await tasks.start("kit_end", "text")
    await run.result()
    assert (await run.view())["ended"] is True


async def test_a_model_is_structured_content_and_text(tasks: Tasks) -> None:
    result = await (await tasks.start("kit_end", "model")).result()
    assert result["structuredContent"] == {"mode": "done", "steps": 1}
    assert result["content"] == [{"type": "text", "text": '{"mode": "done", "steps": 1}'}]


async def test_numbers_that_json_cannot_say_become_null(tasks: Tasks) -> None:
    result = await (await tasks.start("kit_end", "not_finite")).result()
    assert result["structuredContent"] == {"n": None, "i": [None]}


async def test_progress_that_json_cannot_say_is_not_reported(tasks: Tasks) -> None:
    """In a view, it would make the whole view unreadable, and with it the questions."""
    result = await (await tasks.start("kit_end", "not_finite_progress")).result()
    assert result["structuredContent"] == [{"progress": 1.0, "message": "kept"}]


async def test_a_model_that_looks_like_a_result_is_still_structured_content(tasks: Tasks) -> None:
    result = await (await tasks.start("kit_end", "empty_content")).result()
    assert result["structuredContent"] == {"content": [], "other": 1}


async def test_a_question_that_nobody_could_answer_is_refused_where_it_is_asked(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "unanswerable", client_capabilities={"elicitation": {}})).failure()
    assert failure.type == BUG
    assert "object schema" in failure.message


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("deep", TOOL_ERROR, "nested too deeply, the limit is 128 levels"),
        ("deep_question", BUG, "nested too deeply"),
        ("odd_key", BUG, "printable"),
        ("odd_text", BUG, "UnicodeEncodeError"),
        ("grouped_tool_error", TOOL_ERROR, "no such record"),
        ("grouped_bug", BUG, "KeyError"),
    ],
)
async def test_what_could_not_be_stored_or_told_ends_the_task(tasks: Tasks, mode: str, kind: str, words: str) -> None:
    run = await tasks.start("kit_end", mode, client_capabilities={"elicitation": {}, "sampling": {}})
    failure = await run.failure()
    assert failure.type == kind
    assert words in failure.message


async def test_a_checkpoint_that_could_not_be_stored_ends_the_task(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_deep_checkpoint")).failure()
    assert failure.type == BUG
    assert "nested too deeply" in failure.message


async def test_a_message_that_is_no_text_is_mended(tasks: Tasks) -> None:
    assert (await (await tasks.start("kit_end", "odd_progress")).result())["content"][0]["text"] == "a?b"


async def test_a_tool_error_is_a_declared_failure(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "tool_error")).failure()
    assert (failure.type, failure.message, failure.non_retryable) == (TOOL_ERROR, "no such record", True)


async def test_a_json_rpc_error_keeps_code_message_and_data(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "rpc_error")).failure()
    assert failure.type == JSONRPC_ERROR
    assert failure.details == ({"code": 4711, "message": "bad ✓", "data": {"k": [1, None]}},)


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("bug", "KeyError"),
        ("exit", "SystemExit"),
        ("child_exit", "RuntimeError"),
        ("unheard_child", "KeyError"),
        ("base_exception", "BaseException"),
        ("unserialisable", "TypeError"),
    ],
)
async def test_anything_else_fails_the_run_for_good(tasks: Tasks, mode: str, kind: str) -> None:
    """An exception would fail the workflow task for ever, SystemExit would end the worker; then the next task must
    still run.
    """
    failure = await (await tasks.start("kit_end", mode)).failure()
    assert (failure.type, failure.non_retryable) == (BUG, True)
    assert failure.message.startswith(f"{kind}: ")
    assert await (await tasks.start("kit_end", "text")).result()


async def test_a_huge_error_message_is_cut(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "huge_bug")).failure()
    assert failure.message.startswith("ValueError: xxx")
    assert len(failure.message) < 9_000


async def test_a_result_that_temporal_could_not_store_is_a_tool_error(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "too_large")).failure()
    assert failure.type == TOOL_ERROR
    assert str(MAX_PAYLOAD_BYTES) in failure.message


async def test_invalid_arguments_are_a_tool_error_that_names_the_field(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "text", steps="many")).failure()  # type: ignore[arg-type]
    assert failure.type == TOOL_ERROR
    assert "steps" in failure.message
