"""The app that `focusfl deploy init` writes: a copy of this folder."""
