"""What runs at a site, beside its data."""

from focusfl.flower import Work, client_app

from .task import ALGORITHM, gradient, metrics, rows


def work(context) -> Work:
    """Load this site's data; called when there is something to do."""
    x, y = rows(context)
    return Work(
        grad_fn=lambda params, batch: gradient(params, x, y),
        evaluate=lambda params: metrics(params, x, y),
    )


app = client_app(work, ALGORITHM)
