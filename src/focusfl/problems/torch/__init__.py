"""PyTorch modules as problems.

problem.py     from_torch, the one door: for a simulation, or for a site of a deployment
modules.py     checks of modules and samples; parameters by name
eager.py       a module computed by PyTorch itself; what a translation is compared with
export.py      a module to a program, by torch.export
program.py     a program of jax functions, its loss and its metrics
operators/     ATen's operators in jax; OPERATORS is the only list
translate.py   all of this, and the comparison with PyTorch
"""
