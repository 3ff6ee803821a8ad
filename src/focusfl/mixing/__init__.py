"""Stochastic matrices of a set of participants, and methods written with them."""

from focusfl.mixing import decentralized as decentralized
from focusfl.mixing import rounds as rounds
from focusfl.mixing.graphs import column_weights as column_weights
from focusfl.mixing.graphs import metropolis as metropolis
from focusfl.mixing.graphs import row_weights as row_weights
from focusfl.mixing.matrices import average as average
from focusfl.mixing.matrices import check_column_stochastic as check_column_stochastic
from focusfl.mixing.matrices import check_doubly_stochastic as check_doubly_stochastic
from focusfl.mixing.matrices import check_row_stochastic as check_row_stochastic
from focusfl.mixing.matrices import collect as collect
from focusfl.mixing.matrices import gossip as gossip
from focusfl.mixing.matrices import left_perron as left_perron
from focusfl.mixing.matrices import mean_average as mean_average
from focusfl.mixing.matrices import mean_collect as mean_collect
from focusfl.mixing.matrices import mean_pull as mean_pull
from focusfl.mixing.matrices import pull as pull
from focusfl.mixing.matrices import right_perron as right_perron
