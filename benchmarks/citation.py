"""Cora epochs beside PyTorch Geometric: GCN and GAT as in their papers, forward, backward, Adam and an evaluation.

EDGEWISE_DATA=<folder> python benchmarks/citation.py
"""

from edgewise.apps.command.main import main

if __name__ == "__main__":
    for case in ("cora-gcn", "cora-gat"):
        main(["bench", case, "--threads", "2", "--only", "edgewise", "plain", "pyg"])
