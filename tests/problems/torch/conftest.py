import jax
import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread_and_a_compiler_that_hurries():
    """What is compiled here runs for a moment."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
