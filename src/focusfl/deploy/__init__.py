"""Flower's processes on this machine, and the folder of an app for several."""
