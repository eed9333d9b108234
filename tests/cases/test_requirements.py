"""The extension's requirements, by the numbers of the project's checklist: where each is tested."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REQUIREMENTS: Final[dict[int, str]] = {
    0: "test_lifecycle.test_status_never_goes_back_and_changes_together_with_its_payload",
    1: "test_protocol.test_discovery_says_what_is_served_and_for_how_long",
    2: "test_protocol.test_a_call_that_does_not_declare_tasks_gets_a_result_or_is_told_what_to_declare",
    3: "test_protocol.test_capabilities_count_for_their_own_request_only",
    4: "test_protocol.test_a_call_that_does_not_declare_tasks_gets_a_result_or_is_told_what_to_declare",
    5: "test_protocol.test_the_legacy_task_hint_is_ignored",
    6: "test_protocol.test_every_result_names_the_server",
    7: "test_protocol.test_a_task_is_flat_and_has_the_members_of_its_status_alone",
    8: "test_lifecycle.test_a_handle_resolves_at_once_while_nobody_works",
    9: "test_protocol.test_a_task_is_flat_and_has_the_members_of_its_status_alone",
    10: "test_mrtr.test_a_question_before_the_handle_takes_rounds_and_then_a_task",
    11: "test_protocol.test_a_task_is_flat_and_has_the_members_of_its_status_alone",
    12: "test_protocol.test_a_task_is_flat_and_has_the_members_of_its_status_alone",
    13: "test_protocol.test_outstanding_questions_are_all_listed_until_each_is_answered",
    14: "test_protocol.test_a_task_has_the_outcome_that_its_call_would_have_had",
    15: "test_lifecycle.test_an_exception_of_any_kind_ends_the_task_as_a_tool_error",
    16: "test_lifecycle.test_a_json_rpc_error_keeps_code_message_and_data",
    17: "test_lifecycle.test_reading_changes_nothing",
    18: "test_protocol.test_an_unknown_task_is_invalid_params",
    19: "test_protocol.test_a_task_is_flat_and_has_the_members_of_its_status_alone",
    20: "test_smoke.test_a_call_becomes_a_task_that_asks_and_completes",
    21: "test_protocol.test_answers_that_nobody_waits_for_are_acknowledged_and_ignored",
    22: "test_protocol.test_outstanding_questions_are_all_listed_until_each_is_answered",
    23: "test_protocol.test_outstanding_questions_are_all_listed_until_each_is_answered",
    24: "test_protocol.test_an_unknown_task_is_invalid_params",
    25: "test_protocol.test_answers_that_nobody_waits_for_are_acknowledged_and_ignored",
    26: "test_mrtr.test_a_malformed_answer_is_refused_and_the_question_stays",
    27: "test_protocol.test_a_task_is_flat_and_has_the_members_of_its_status_alone",
    28: "test_lifecycle.test_status_never_goes_back_and_changes_together_with_its_payload",
    29: "test_protocol.test_an_unknown_task_is_invalid_params",
    30: "test_protocol.test_a_cancelled_notification_cancels_nothing",
    31: "test_protocol.test_a_refused_caller_has_no_effect_on_a_live_task",
    32: "test_protocol.test_a_method_that_is_not_served_is_not_found",
    33: "test_protocol.test_the_legacy_task_hint_is_ignored",
    34: "test_protocol.test_a_refused_caller_has_no_effect_on_a_live_task",
    35: "test_protocol.test_discovery_says_what_is_served_and_for_how_long",
    36: "test_lifecycle.test_a_lifetime_ends_the_task_as_failed_and_not_before",
    37: "test_lifecycle.test_ttl_interval_and_times_are_well_typed_in_every_status_and_the_same_everywhere",
    38: "test_listen.test_a_task_is_told_from_its_question_to_its_end_as_tasks_get_says_it",
    39: "test_listen_cases.test_a_listen_without_the_extension_is_refused_and_starts_nothing",
    40: "test_listen.test_progress_is_told_as_the_state_of_the_task_and_never_by_itself",
    41: "test_listen.test_an_ended_task_is_told_once",
    42: "test_lifecycle.test_ids_are_unguessable_and_fit_into_a_header",
    43: "test_mrtr.test_without_the_token_no_method_does_anything",
    44: "test_protocol.test_a_task_is_addressed_only_if_header_and_body_name_it",
    45: "test_protocol.test_a_poll_that_may_not_see_the_question_is_refused_and_the_task_is_not_lost",
    46: "test_protocol.test_a_method_that_is_not_served_is_not_found",
    47: "test_protocol.test_a_malformed_member_is_invalid_params",
}


def test_every_requirement_of_the_extension_names_a_test_that_exists() -> None:
    assert REQUIREMENTS.keys() == set(range(48))
    for place in REQUIREMENTS.values():
        module, name = place.split(".")
        source = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
        assert f"def {name}(" in source, place
