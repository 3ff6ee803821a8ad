"""PyTorch modules as problems.

problem.py     from_torch, the one public door: for a simulation, or for a site of a deployment
modules.py     checks of modules and samples; parameters by name
eager.py       a module computed by PyTorch itself, which a translation is compared with
export.py      from a module to a program, by torch.export
program.py     a program of jax functions, its loss and its metrics
operators/     ATen's operators in jax; OPERATORS is the only list of them
translate.py   uses all of these, and compares with PyTorch
"""
