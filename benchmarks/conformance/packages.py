"""The packages that are checked: where they come from, what drives them, and which of
their lines decide where they end."""

from typing import NamedTuple

TORCH = "torch==2.13.0"  # any looser requirement pulls gigabytes of CUDA


class Line(NamedTuple):
    """A line of theirs, found by a piece of it in the version that was run."""

    file: str  # from the folder of their code
    has: str
    what: str  # what it does, in our words


class Package(NamedTuple):
    title: str
    adapter: str  # module:object of this folder
    install: list[str]
    shows: str  # the distribution whose version is shown
    source: str = ""  # owner/name on GitHub, where it is on no index
    part: str = ""  # the folders of it that are needed
    root: str = ""  # the folder to import from
    rows: str = ""  # those that are run; all if empty
    lines: tuple[Line, ...] = ()


PACKAGES = {
    "fluke": Package(
        "fluke, SCAFFOLD", "fluke_side:Scaffold", [TORCH, "fluke-fl==0.8.1"],
        "fluke-fl",
        lines=(
            Line("fluke/algorithms/scaffold.py", "self.control = deepcopy(c_plus)",
                 "the client's control advances before anything is sent"),
        ),
    ),
    "pfl": Package(
        "pfl, SCAFFOLD option II", "pfl_side:Scaffold", [TORCH, "pfl==0.6.0"], "pfl",
        lines=(
            Line("pfl/algorithm/scaffold.py", "local_c_plus += model_diff",
                 "the difference is new minus old model; the paper's is old minus new"),
        ),
    ),
    "pfl-I": Package(
        "pfl, SCAFFOLD option I", "pfl_side:ScaffoldI", [TORCH, "pfl==0.6.0"], "pfl",
        rows="full,uniform",
        lines=(
            Line("pfl/algorithm/scaffold.py",
                 "local_c_plus = model.get_model_difference(initial_model_state)",
                 "minus the gradient, in a buffer that the model uses again; the "
                 "storage in memory keeps a reference to it"),
        ),
    ),
    "pfl-I-copies": Package(
        "pfl, SCAFFOLD option I, storage of copies (ours)", "pfl_side:ScaffoldICopies",
        [TORCH, "pfl==0.6.0"], "pfl", rows="full,uniform",
    ),
    "nvflare": Package(
        "NVFlare, SCAFFOLD", "nvflare_side:Scaffold", [TORCH, "nvflare==2.9.0"],
        "nvflare",
        lines=(
            Line("nvflare/app_common/workflows/scaffold.py",
                 "self._global_ctrl_weights[v_name] = _add_control_delta(",
                 "c moves by the mean over those that replied, without |S|/N"),
            Line("nvflare/app_common/workflows/scaffold.py",
                 "weight = _get_num_steps_weight(_result)",
                 "replies weigh by the number of their local steps"),
            Line("nvflare/app_opt/pt/scaffold.py",
                 "self.c_local.load_state_dict(c_new_para)",
                 "the client's control advances before anything is sent"),
        ),
    ),
    "flgo": Package(
        "flgo, SCAFFOLD", "flgo_side:Scaffold", [TORCH, "flgo==0.4.4"], "flgo",
        lines=(
            Line("flgo/algorithm/scaffold.py", "self.c = self.c + dc",
                 "the client's control advances before anything is sent"),
        ),
    ),
    "fedlab": Package(
        "FedLab, SCAFFOLD", "fedlab_side:Scaffold", [TORCH, "fedlab==1.3.0"], "fedlab",
        lines=(
            Line("fedlab/contrib/algorithm/scaffold.py", "self.cs[id] += dc",
                 "the client's control advances before anything is sent"),
        ),
    ),
    "flower": Package(
        "Flower baseline niid_bench, SCAFFOLD", "flower_side:Scaffold",
        [TORCH, "torchvision", "flwr==1.5.0", "hydra-core==1.3.2"], "flwr",
        source="adap/flower", part="baselines/niid_bench",
        root="baselines/niid_bench",
        lines=(
            Line("niid_bench/client_scaffold.py",
                 "self.client_cv.append(param.clone().detach())",
                 "a client's control begins as the model it receives first"),
            Line("niid_bench/server_scaffold.py",
                 "for t in parameters_to_ndarrays(get_parameters_res.parameters)",
                 "the server's control begins as the first model"),
            Line("niid_bench/client_scaffold.py", "torch.save(self.client_cv",
                 "the client's control advances before anything is sent"),
        ),
    ),
    "pfllib": Package(
        "PFLlib, SCAFFOLD", "pfllib_side:Scaffold",
        [TORCH, "torchvision", "scikit-learn", "h5py", "ujson", "matplotlib"], "torch",
        source="TsingZ0/PFLlib", part="system", root="system",
        lines=(
            Line("flcore/clients/clientscaffold.py", "ci.data = ci - c + 1/",
                 "the client's control advances before the server drops its reply"),
            Line("flcore/servers/serverscaffold.py",
                 "client_param.data.clone() / self.num_join_clients",
                 "the sum of the movements is divided by those that were asked"),
        ),
    ),
    "flbench": Package(
        "FL-bench, SCAFFOLD", "flbench_side:Scaffold",
        [TORCH, "torchvision", "omegaconf", "hydra-core", "rich", "pandas",
         "scikit-learn", "ray", "pynvml", "matplotlib"], "torch",
        source="KarhouTam/FL-bench", part="src data", rows="full,uniform,lost",
        lines=(
            Line("src/client/scaffold.py", "self.c_local = c_plus",
                 "the client's control is kept by the worker alone; the server's list "
                 "of them, which the next round sends, is not written"),
        ),
    ),
    "fedml": Package(
        "FedML sp, SCAFFOLD", "fedml_side:Scaffold",
        [TORCH, "setuptools<81", "fedml==0.9.6"], "fedml", rows="full,uniform",
        lines=(
            Line("fedml/ml/aggregator/agg_operator.py",
                 "total_weights_delta[k] = weights_delta[k]",
                 "after the sum is done, it is replaced by the last client's"),
            Line("fedml/simulation/sp/scaffold/scaffold_trainer.py",
                 "w_global = self.model_trainer.get_model_params()",
                 "shares memory with the model that clients train: in the first round "
                 "it takes the first client's first step with it"),
            Line("fedml/simulation/sp/scaffold/client.py",
                 "c_new_para[key] = c_new_para[key] - c_model_global_param[key]",
                 "the new control is put into a dict, and not into the client's model"),
        ),
    ),
    "fedml-copies": Package(
        "FedML sp, SCAFFOLD, first model copied (by us)", "fedml_side:ScaffoldCopies",
        [TORCH, "setuptools<81", "fedml==0.9.6"], "fedml", rows="full,uniform",
    ),
}  # fmt: skip
# What was tried and could not be driven, and why.
NOT_RUN = {
    "decent-bench 0.2.2": "needs Python 3.13 or newer, which this was not run on.",
    "APPFL 1.12.0, FedJAX 0.0.17, EasyFL 0.1.2": "have no SCAFFOLD.",
}
