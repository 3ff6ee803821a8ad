"""ATen's operators that reshape, index, create and reduce arrays, in jax."""

import jax
import jax.numpy as jnp
import numpy as np


def _axes(dim):
    """Return the axes of a reduction in jax; None is all of them."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return None
    return tuple(dim) if isinstance(dim, list | tuple) else dim


def over(reduce):
    """Give a reduction of jax the arguments of PyTorch."""
    return lambda a, dim=None, keepdim=False: reduce(a, _axes(dim), keepdims=keepdim)


def best(choose):
    """Make max or min: values and places along an axis, or one value without an axis."""

    def best_of(a, dim=None, keepdim=False):
        if dim is None:
            return {jnp.argmax: jnp.max, jnp.argmin: jnp.min}[choose](a)
        where = choose(a, dim, keepdims=True)
        values = jnp.take_along_axis(a, where, dim)
        if keepdim:
            return values, where
        return values.squeeze(dim), where.squeeze(dim)

    return best_of


def variance(a, dim=None, correction=1, keepdim=False):
    return jnp.var(a, _axes(dim), ddof=int(correction), keepdims=keepdim)


def var_mean(a, dim=None, correction=1, keepdim=False):
    mean = jnp.mean(a, _axes(dim), keepdims=keepdim)
    return variance(a, dim, correction, keepdim), mean


def vector_norm(a, ord=2, dim=None, keepdim=False):
    """Compute a norm, whose gradient at 0 is 0 as in PyTorch."""
    axes, size = _axes(dim), jnp.abs(a)
    if ord == float("inf"):
        return jnp.max(size, axes, keepdims=keepdim)
    if ord == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    total = jnp.sum(a * a if ord == 2 else size**ord, axes, keepdims=keepdim)
    safe = jnp.where(total > 0, total, 1) ** (1 / ord)
    return jnp.where(total > 0, safe, 0)


def ordered(a, dim=-1, descending=False, stable=True):
    where = jnp.argsort(a, dim, stable=True, descending=descending)
    return jnp.take_along_axis(a, where, dim), where


def topk(a, k, dim=-1, largest=True, sorted=True):
    del sorted
    values, where = ordered(a, dim, largest)
    axes = (jax.lax.slice_in_dim(v, 0, k, axis=dim) for v in (values, where))
    return tuple(axes)


def median(a, dim=-1, keepdim=False):
    """Return the median, the lower one of two, and its place."""
    values, where = ordered(a, dim)
    at = (a.shape[dim] - 1) // 2
    both = tuple(jax.lax.index_in_dim(v, at, dim) for v in (values, where))
    return both if keepdim else tuple(v.squeeze(dim) for v in both)


def cdist(a, b, p, mode=None):
    del mode
    return vector_norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def unfold(a, dim, size, step):
    """Cut windows along an axis; they are a new last axis."""
    starts = np.arange(0, a.shape[dim] - size + 1, step)
    windows = jnp.take(a, starts[:, None] + np.arange(size), dim)
    return jnp.moveaxis(windows, dim % a.ndim + 1, -1)


def select(a, dim, at):
    return jax.lax.index_in_dim(a, at, dim, keepdims=False)


def cut(a, dim=0, start=None, end=None, step=1):
    return a[_along(a, dim, slice(start, end, step))]


def expand(a, size, implicit=False):
    del implicit
    lead = len(size) - a.ndim
    known = [a.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    return jnp.broadcast_to(a, known)


def squeeze(a, dim=None):
    axes = range(a.ndim) if dim is None else np.atleast_1d(dim)
    return a.squeeze(tuple(int(i) for i in axes if a.shape[i] == 1))


def cat(arrays, dim=0):
    # PyTorch ignores arrays of shape (0,).
    return jnp.concatenate([a for a in arrays if a.shape != (0,)], dim)


def pad(a, pads, value=0):
    """Pad by pairs of numbers, the last axis first; negative ones cut off."""
    ends = [(pads[i], pads[i + 1], 0) for i in range(0, len(pads), 2)]
    ends += [(0, 0, 0)] * (a.ndim - len(ends))
    return jax.lax.pad(a, jnp.asarray(value, a.dtype), ends[::-1])


def _index(at):
    """Return an index of jax for places in some axes; None is all of an axis."""
    return tuple(slice(None) if i is None else i for i in at)


def index_put(a, at, values, accumulate=False):
    place = a.at[_index(at)]
    values = values.astype(a.dtype)
    return place.add(values) if accumulate else place.set(values)


def gather(a, dim, at, sparse_grad=False):
    """Gather by places; those outside, such as a label of no class, give NaN."""
    del sparse_grad
    dim %= a.ndim
    a = a[tuple(slice(None if i == dim else n) for i, n in enumerate(at.shape))]
    at = jnp.where(at < 0, a.shape[dim], at)
    return jnp.take_along_axis(a, at, dim, mode="fill")


def flatten(a, first=0, last=-1):
    first, last = first % a.ndim, last % a.ndim
    return a.reshape(*a.shape[:first], -1, *a.shape[last + 1 :])


def _places(dim, at):
    where = list(jnp.indices(at.shape, sparse=True))
    where[dim % at.ndim] = at
    return tuple(where)


def scatter(a, dim, at, values):
    if hasattr(values, "shape") and values.ndim:
        values = values[tuple(map(slice, at.shape))]
    return a.at[_places(dim, at)].set(values)


def scatter_add(a, dim, at, values):
    return a.at[_places(dim, at)].add(values[tuple(map(slice, at.shape))])


def _along(a, dim, at):
    """Return an index of `at` along one axis of an array."""
    return (*[slice(None)] * (dim % a.ndim), at)


def slice_scatter(a, values, dim=0, start=None, end=None, step=1):
    return a.at[_along(a, dim, slice(start, end, step))].set(values)


ARRAYS = {
    "_cdist_forward": cdist, "_unsafe_view": jnp.reshape, "all": over(jnp.all),
    "amax": over(jnp.max), "amin": over(jnp.min), "any": over(jnp.any), "arange": jnp.arange,
    "argmax": over(jnp.argmax), "argmin": over(jnp.argmin), "cat": cat, "constant_pad_nd": pad,
    "cumprod": jnp.cumprod, "cumsum": jnp.cumsum, "diagonal": jnp.diagonal,
    "empty_like": jnp.zeros_like, "expand": expand, "eye": jnp.eye, "flatten.using_ints": flatten,
    "flip": jnp.flip, "gather": gather, "index_put": index_put, "linalg_vector_norm": vector_norm,
    "linspace": jnp.linspace, "logsumexp": over(jax.nn.logsumexp), "max": best(jnp.argmax),
    "mean": over(jnp.mean), "median.dim": median, "min": best(jnp.argmin), "ones": jnp.ones,
    "ones_like": jnp.ones_like, "permute": jnp.transpose, "prod": over(jnp.prod),
    "repeat": jnp.tile, "reshape": jnp.reshape, "scalar_tensor": jnp.asarray, "scatter": scatter,
    "scatter_add": scatter_add, "select": select, "slice": cut, "slice_scatter": slice_scatter,
    "sort": ordered, "squeeze": squeeze, "sum": over(jnp.sum), "t": jnp.transpose, "topk": topk,
    "transpose": jnp.swapaxes, "tril": jnp.tril, "triu": jnp.triu,
    "unfold": unfold, "unsqueeze": jnp.expand_dims,
    "var": variance, "var_mean": var_mean, "view": jnp.reshape, "zeros": jnp.zeros,
    "zeros_like": jnp.zeros_like,
    "argsort": lambda a, *order: ordered(a, *order)[1],
    "empty": lambda size, *_: jnp.zeros(size),
    "empty_permuted": lambda size, *_: jnp.zeros(size),
    "full": lambda size, value, *_: jnp.full(size, value),
    "full_like": lambda a, value: jnp.full(a.shape, value),
    "index": lambda a, at: a[_index(at)],
    "index_select": lambda a, dim, at: jnp.take(a, at, dim),
    "logcumsumexp": lambda a, dim: jax.lax.cumlogsumexp(a, dim % a.ndim),
    "roll": lambda a, shifts, dims=(): jnp.roll(a, shifts, _axes(dims)),
    "select_scatter": lambda a, values, dim, at: a.at[_along(a, dim, at)].set(values),
    "split": lambda a, size, dim=0: tuple(jnp.split(a, range(size, a.shape[dim], size), dim)),
    "split_with_sizes": (
        lambda a, sizes, dim=0: tuple(jnp.split(a, np.cumsum(sizes)[:-1].tolist(), dim))
    ),
    "stack": lambda arrays, dim=0: jnp.stack(arrays, dim),
    "std": lambda *args, **kwargs: jnp.sqrt(variance(*args, **kwargs)),
    "tril_indices": lambda rows, cols, k=0: jnp.stack(jnp.tril_indices(rows, k, cols)),
    "triu_indices": lambda rows, cols, k=0: jnp.stack(jnp.triu_indices(rows, k, cols)),
    "unbind": lambda a, dim=0: tuple(select(a, dim, i) for i in range(a.shape[dim])),
}  # fmt: skip
