"""FedAvg on the ridge regression as a loop in NumPy: one product per local step."""

import time

from common import params, read, report


def main():
    task = read()
    work, x = task.work, params(task.work)["w"]
    H, h, lr = work["H"], work["h"], float(work["lr"])
    steps = int(work["local_steps"])
    for r, who in enumerate(task.cohorts.tolist()):
        if r == task.warm:
            start = time.time()
        total = 0.0
        for i in who:
            mine = x
            for _ in range(steps):
                mine = mine - lr * (H[i] @ mine - h[i])
            total = total + mine
        x = total / len(who)
    report(task, task.rounds, start, time.time(), {"w": x}, ["numpy"])


if __name__ == "__main__":
    main()
