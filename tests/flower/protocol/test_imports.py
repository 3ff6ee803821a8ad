"""A participant needs numpy and safetensors and nothing else."""

import subprocess
import sys

CODE = """
import sys
before = {*sys.modules}
for name in ("jax", "jaxlib", "jaxtyping", "rich", "scipy", "torch", "flwr"):
    sys.modules[name] = None  # importing it is an error
import numpy as np
import focusfl as ff
from focusfl.flower.protocol import ProtocolServer, Site

names, folder = ["a", "b"], sys.argv[1]
for name, kind in ff.ALGORITHMS.items():
    job = kind.__name__
    with ProtocolServer(
        kind(), np.ones(3), names, folder, job=job, lr=0.1, local_steps=2
    ) as server:
        sites = {name: Site(kind(), job, name) for name in names}
        for r in range(3):
            for name in names[: 1 + r % 2]:
                reply = sites[name].answer(server.request(name), lambda x, batch: x)
                assert server.receive(name, reply).applied
            server.close_round()
        assert server.round == 3
there = {name.partition(".")[0] for name, module in sys.modules.items() if module}
print(sorted(there - {*sys.stdlib_module_names, *before}))
"""


def test_a_job_runs_where_only_numpy_and_safetensors_are(folder):
    done = subprocess.run([sys.executable, "-c", CODE, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['focusfl', 'numpy', 'safetensors']"


def test_importing_focusfl_imports_no_flower():
    code = "import sys, focusfl; focusfl.flower; assert 'flwr' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
