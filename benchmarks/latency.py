"""10⁶ arrivals of a federation of 10⁴: an asynchronous run of FOCUS, by the wall clock.

    python benchmarks/latency.py [--arrivals 1000000] [--clients 10000]

Every arrival is a round of its own: one client's gradient at the model it left with,
and one step of the server. The whole run is drawing, compiling, training, evaluating.
"""

import argparse
import time

import numpy as np

import focusfl as ff


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arrivals", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.arrivals, options.clients = 1000, 20
    clients, arrivals = options.clients, options.arrivals
    rng = np.random.default_rng(0)
    problem = ff.problems.LeastSquares(
        rng.standard_normal((clients, 4, 10)), rng.standard_normal((clients, 4))
    )
    law = ff.participation.Async(
        ff.participation.LatencyModel(
            compute={"median": 1.0, "sigma": 1.0}, up=1.0, latency=0.01, jitter=0.3
        )
    )
    fitted = law.with_work(ff.Focus(), problem.x0, 1)
    began = time.perf_counter()
    for _ in ff.participation.schedule(fitted, clients, arrivals, seed=0):
        pass
    drawn = time.perf_counter() - began
    began = time.perf_counter()
    lr = 0.01 / clients**2
    result = ff.simulate(
        ff.Focus(),
        problem,
        law,
        rounds=arrivals,
        lr=lr,
        eval_every=max(1, arrivals // 20),
    )
    whole = time.perf_counter() - began
    print(f"{arrivals:,} arrivals of {clients:,} clients")
    print(f"  drawing the schedule alone  {drawn:6.1f} s")
    print(f"  the whole run               {whole:6.1f} s")
    print(f"  simulated                   {result.metrics['seconds'].sum():6.0f} s")
    print(f"  relative error              {result.metrics['distance'][-1]:8.1e}")


if __name__ == "__main__":
    main()
