"""A participant needs numpy and nothing else."""

import subprocess
import sys

CODE = """
import sys
before = {*sys.modules}
for name in ("jax", "jaxlib", "jaxtyping", "rich", "scipy", "torch", "matplotlib"):
    sys.modules[name] = None  # importing it is an error
import numpy as np
import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Site

names, folder = ["a", "b"], sys.argv[1]
for kind in ff.ALGORITHMS.values():
    job = kind.__name__
    with ProtocolServer(
        kind(), np.ones(3), names, folder, job=job, lr=0.1, local_steps=2
    ) as protocol:
        for r in range(3):
            for name in names[: 1 + r % 2]:
                site = Site(kind(), folder, job, name)
                reply = site.answer(protocol.request(name), lambda x, batch: x)
                assert protocol.receive(name, reply).applied
            protocol.close_round()
        assert protocol.round == 3
there = {name.partition(".")[0] for name, module in sys.modules.items() if module}
print(sorted(there - {*sys.stdlib_module_names, *before}))
"""


def test_a_job_runs_where_only_numpy_is(folder):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['focusfl', 'numpy']"
