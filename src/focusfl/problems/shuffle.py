"""A random order, computed only where it is asked for."""

from typing import Any

SWAPS = 40  # rounds of the shuffle
UNROLL = 4  # of them per turn of its loop


def shuffled(key: Any, places: Any, length: Any) -> Any:
    """Where these places of 0..length-1 go in a random order of all of them.

    Swap or not (Hoang, Morris, Rogaway 2012, https://arxiv.org/abs/1208.1176): pair
    all places up, swap each pair or leave it by a hash of the pair, and again. Costs
    by the places asked for; sorting random numbers would cost by the length.
    """
    import jax
    import jax.numpy as jnp

    def swap(places, random):
        shift, salt = random
        partner = shift % n + n - places
        partner = jnp.where(partner >= n, partner - n, partner)
        coin = (jnp.maximum(places, partner) ^ salt) * jnp.uint32(0x9E3779B1)
        coin = (coin ^ (coin >> 15)) * jnp.uint32(0x85EBCA77)
        coin = (coin ^ (coin >> 13)) * jnp.uint32(0xC2B2AE3D)
        return jnp.where(coin >> 31 == 1, partner, places), None

    n, random = jnp.uint32(length), jax.random.bits(key, (SWAPS, 2), "uint32")
    # A turn of a loop is nothing on a CPU, and several launches elsewhere; a long body
    # takes seconds to compile there.
    unroll = 1 if jax.default_backend() == "cpu" else UNROLL
    places, _ = jax.lax.scan(swap, places.astype("uint32"), random, unroll=unroll)
    return places.astype("int32")
