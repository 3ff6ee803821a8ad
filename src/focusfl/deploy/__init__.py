"""Flower's processes on this machine, and the folder of an app for several."""

SCENARIO = "deployed"  # the participation of a deployment: whoever was there
