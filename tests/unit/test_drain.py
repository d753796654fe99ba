"""The drain budget: each step outlasts what it waits for."""

import pytest

from eks_llm.serving.drain import drain


@pytest.mark.parametrize("longest", [1, 59.5, 300, 3600])
def test_every_step_fits_into_the_next(longest: float) -> None:
    budget = drain(longest)
    assert budget.pre_stop >= 15  # KServe, llm-d: endpoints and proxies need that long to drop a pod
    assert budget.exit_timeout > longest
    # Kubernetes counts preStop in the grace period; vLLM then needs 5 s until it kills its workers.
    assert budget.grace >= budget.pre_stop + budget.exit_timeout + 5


def test_a_five_minute_request_survives_a_scale_in_of_the_cluster_autoscaler() -> None:
    assert drain(300).grace < 600  # its --max-graceful-termination-sec
