"""Cora epochs beside PyTorch Geometric: GCN and GAT as in their papers, forward, backward, Adam and an evaluation.

EDGEWISE_DATA=<folder> python -m benchmarks.studies.citation
"""

from benchmarks.__main__ import main

if __name__ == "__main__":
    main(["cora-gcn", "cora-gat", "--threads", "2", "--only", "edgewise", "plain", "pyg"])
