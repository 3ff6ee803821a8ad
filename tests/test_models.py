"""Models on disk: as they were, for us and for every other reader of the format."""

import numpy as np
import pytest
import safetensors.numpy

from focusfl.core.models import read_model, save_model

RNG = np.random.default_rng(0)
MODELS = {
    "one array": RNG.standard_normal(5),
    "nested": {"out": {"w": RNG.standard_normal((3, 2)), "b": np.float32([1, 2])}},
    "same last names": {"x": {"w": np.ones(2)}, "w": np.zeros(3)},
    "dots in names": {"a.b": np.ones(1), "a": {"b": np.zeros(2)}},
    "scalars and empties": {"s": np.float64(3), "none": np.zeros((0, 4))},
    "other dtypes": {"h": np.float16([1.5]), "u": np.uint8([9]), "t": np.bool_([1])},
}


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    a = np.asarray(a)
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_model_comes_back_as_it_was(tmp_path, model):
    file = save_model(tmp_path / "deep" / "m.safetensors", model, {"lr": "0.1"})
    assert equal(model, read_model(file))
    assert [entry.name for entry in file.parent.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_other_readers_get_every_tensor(tmp_path, model):
    theirs = safetensors.numpy.load_file(save_model(tmp_path / "m.safetensors", model))
    assert sum(a.size for a in theirs.values()) == sum(np.size(a) for a in _leaves(model))


def test_bfloat16_survives(tmp_path):
    import ml_dtypes

    model = {"w": np.arange(4).astype(ml_dtypes.bfloat16)}
    assert equal(model, read_model(save_model(tmp_path / "m.safetensors", model)))


def test_what_others_wrote_is_read(tmp_path):
    file = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file({"conv.weight": np.ones((2, 3), "float32")}, file)
    assert equal({"conv": {"weight": np.ones((2, 3), "float32")}}, read_model(file))


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "text", "longer"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage):
    file = save_model(tmp_path / "m.safetensors", MODELS["nested"])
    whole = file.read_bytes()
    file.write_bytes(
        {
            "cut": whole[:-3],
            "header": whole[:20] + b"?" + whole[21:],
            "empty": b"",
            "text": b"a line of text, and no model at all",
            "longer": whole + b"12345678",
        }[damage]
    )
    with pytest.raises(ValueError, match="m.safetensors is (damaged|not a safe)"):
        read_model(file)


def test_no_damaged_byte_of_the_head_gives_a_raw_error(tmp_path):
    file = save_model(tmp_path / "m.safetensors", MODELS["nested"])
    whole = file.read_bytes()
    for place in range(8 + int.from_bytes(whole[:8], "little")):
        for bits in (0x01, 0x80, 0xFF):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
            with pytest.raises(ValueError, match="m.safetensors is (damaged|not a safe)"):
                read_model(file)


@pytest.mark.parametrize("model", [{1: np.ones(2)}, {"w": np.array(["a"])}, "model"])
def test_what_is_no_model_is_not_written(tmp_path, model):
    with pytest.raises(ValueError):
        save_model(tmp_path / "m.safetensors", model)
    assert not list(tmp_path.iterdir())


def _leaves(model):
    if isinstance(model, dict):
        return [leaf for part in model.values() for leaf in _leaves(part)]
    return [model]
