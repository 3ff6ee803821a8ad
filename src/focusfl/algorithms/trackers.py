"""Who keeps y, what it takes all gradients to sum to where the server is."""

from focusfl.algorithms import focus, t_focus, t_scaffold

TRACKERS = focus.Server, t_focus.Server, t_scaffold.Server
