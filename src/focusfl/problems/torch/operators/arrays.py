"""ATen's operators that move, pick, make and reduce arrays, in jax."""

import jax
import jax.numpy as jnp
import numpy as np


def _axes(dim):
    """The axes that a reduction is over; none given is all of them."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return None
    return tuple(dim) if isinstance(dim, list | tuple) else dim


def over(reduce):
    """Make a reduction by jax one with PyTorch's arguments."""
    return lambda a, dim=None, keepdim=False: reduce(a, _axes(dim), keepdims=keepdim)


def best(choose):
    """Make the largest or smallest along an axis, and where; all of them without."""

    def found(a, dim=None, keepdim=False):
        if dim is None:
            return {jnp.argmax: jnp.max, jnp.argmin: jnp.min}[choose](a)
        where = choose(a, dim, keepdims=True)
        values = jnp.take_along_axis(a, where, dim)
        if keepdim:
            return values, where
        return values.squeeze(dim), where.squeeze(dim)

    return found


def arg(choose):
    return lambda a, dim=None, keepdim=False: choose(a, dim, keepdims=keepdim)


def variance(a, dim=None, correction=1, keepdim=False):
    return jnp.var(a, _axes(dim), ddof=int(correction), keepdims=keepdim)


def deviation(a, dim=None, correction=1, keepdim=False):
    return jnp.sqrt(variance(a, dim, correction, keepdim))


def var_mean(a, dim=None, correction=1, keepdim=False):
    mean = jnp.mean(a, _axes(dim), keepdims=keepdim)
    return variance(a, dim, correction, keepdim), mean


def vector_norm(a, ord=2, dim=None, keepdim=False):
    """Where all numbers are 0 the gradient is 0, as in PyTorch."""
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
    """The lower of two in the middle, and where it is."""
    values, where = ordered(a, dim)
    at = (a.shape[dim] - 1) // 2
    found = tuple(jax.lax.index_in_dim(v, at, dim) for v in (values, where))
    return found if keepdim else tuple(v.squeeze(dim) for v in found)


def cdist(a, b, p, mode=None):
    del mode
    return vector_norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def unfold(a, dim, size, step):
    """Windows along an axis, in a new one at the end."""
    starts = np.arange(0, a.shape[dim] - size + 1, step)
    windows = jnp.take(a, starts[:, None] + np.arange(size), dim)
    return jnp.moveaxis(windows, dim % a.ndim + 1, -1)


def select(a, dim, at):
    return jax.lax.index_in_dim(a, at, dim, keepdims=False)


def cut(a, dim=0, start=None, end=None, step=1):
    return a[(*[slice(None)] * (dim % a.ndim), slice(start, end, step))]


def expand(a, size, implicit=False):
    del implicit
    lead = len(size) - a.ndim
    known = [a.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    return jnp.broadcast_to(a, known)


def squeeze(a, dim=None):
    axes = range(a.ndim) if dim is None else np.atleast_1d(dim)
    return a.squeeze(tuple(int(i) for i in axes if a.shape[i] == 1))


def cat(arrays, dim=0):
    kept = [a for a in arrays if a.shape != (0,)]  # PyTorch looks past such
    return jnp.concatenate(kept, dim)


def split(a, size, dim=0):
    return tuple(jnp.split(a, range(size, a.shape[dim], size), dim))


def split_with_sizes(a, sizes, dim=0):
    return tuple(jnp.split(a, np.cumsum(sizes)[:-1].tolist(), dim))


def unbind(a, dim=0):
    return tuple(select(a, dim, i) for i in range(a.shape[dim]))


def pad(a, pads, value=0):
    """Pads come in pairs, the last axis first; what is negative is cut off."""
    ends = [(pads[i], pads[i + 1], 0) for i in range(0, len(pads), 2)]
    ends += [(0, 0, 0)] * (a.ndim - len(ends))
    return jax.lax.pad(a, jnp.asarray(value, a.dtype), ends[::-1])


def repeat(a, sizes):
    return jnp.tile(a.reshape((1,) * (len(sizes) - a.ndim) + a.shape), sizes)


def index(a, at):
    return a[tuple(slice(None) if i is None else i for i in at)]


def index_put(a, at, values, accumulate=False):
    place = a.at[tuple(slice(None) if i is None else i for i in at)]
    values = values.astype(a.dtype)
    return place.add(values) if accumulate else place.set(values)


def gather(a, dim, at, sparse_grad=False):
    """What lies outside, as a label of no class does, is not a number."""
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


def select_scatter(a, values, dim, at):
    return a.at[(*[slice(None)] * (dim % a.ndim), at)].set(values)


def slice_scatter(a, values, dim=0, start=None, end=None, step=1):
    return a.at[(*[slice(None)] * (dim % a.ndim), slice(start, end, step))].set(values)


def full(size, value, *_):
    return jnp.full(size, value)


def full_like(a, value):
    return jnp.full(a.shape, value)


def triangle(lower):
    """Make the places of a lower or upper triangle, rows and columns."""

    def places(rows, columns, offset=0):
        below = np.tri(rows, columns, offset if lower else offset - 1, dtype=bool)
        return jnp.asarray(np.stack(np.nonzero(below if lower else ~below)))

    return places


ARRAYS = {
    "all": over(jnp.all), "amax": over(jnp.max), "amin": over(jnp.min),
    "any": over(jnp.any), "arange": jnp.arange, "argmax": arg(jnp.argmax),
    "argmin": arg(jnp.argmin), "argsort": lambda a, *order: ordered(a, *order)[1],
    "cat": cat, "constant_pad_nd": pad, "cumprod": jnp.cumprod, "cumsum": jnp.cumsum,
    "_cdist_forward": cdist, "diagonal": jnp.diagonal,
    "empty": lambda size, *_: jnp.zeros(size),
    "empty_like": jnp.zeros_like, "empty_permuted": lambda size, *_: jnp.zeros(size),
    "expand": expand, "eye": jnp.eye, "flatten.using_ints": flatten,
    "flip": jnp.flip, "full": full,
    "full_like": full_like, "gather": gather, "index": index, "index_put": index_put,
    "index_select": lambda a, dim, at: jnp.take(a, at, dim),
    "linalg_vector_norm": vector_norm, "linspace": jnp.linspace,
    "logsumexp": over(jax.nn.logsumexp), "max": best(jnp.argmax),
    "logcumsumexp": lambda a, dim: jax.lax.cumlogsumexp(a, dim % a.ndim),
    "mean": over(jnp.mean), "median.dim": median, "min": best(jnp.argmin),
    "ones": jnp.ones, "ones_like": jnp.ones_like, "permute": jnp.transpose,
    "prod": over(jnp.prod),
    "repeat": repeat, "reshape": jnp.reshape,
    "roll": lambda a, shifts, dims=(): jnp.roll(a, shifts, _axes(dims)),
    "scalar_tensor": jnp.asarray, "scatter": scatter, "scatter_add": scatter_add,
    "select": select, "select_scatter": select_scatter, "slice": cut,
    "slice_scatter": slice_scatter, "sort": ordered, "split": split,
    "split_with_sizes": split_with_sizes, "squeeze": squeeze,
    "stack": lambda arrays, dim=0: jnp.stack(arrays, dim), "std": deviation,
    "sum": over(jnp.sum), "t": jnp.transpose, "topk": topk,
    "transpose": jnp.swapaxes, "tril": jnp.tril, "tril_indices": triangle(True),
    "triu": jnp.triu, "triu_indices": triangle(False),
    "unbind": unbind,
    "unfold": unfold,
    "unsqueeze": jnp.expand_dims, "var": variance, "var_mean": var_mean,
    "view": jnp.reshape, "_unsafe_view": jnp.reshape, "zeros": jnp.zeros,
    "zeros_like": jnp.zeros_like,
}  # fmt: skip
