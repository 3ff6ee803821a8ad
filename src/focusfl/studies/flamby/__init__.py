"""FLamby's published tables, trained anew cell by cell.

Terrail et al. NeurIPS 2022. https://arxiv.org/abs/2210.04620

Models, splits, batches, rounds and steps are those of its public code when the tables
were made; the algorithms are this library's.
"""
