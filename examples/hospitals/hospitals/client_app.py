"""What runs in a hospital."""

from focusfl.flower import client_app
from hospitals.task import ALGORITHM, work

app = client_app(work, ALGORITHM)
