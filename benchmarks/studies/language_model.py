"""Edgewise's transformer beside a GPT in plain PyTorch: 4 layers, 4 heads, width 128, context 64, batch 12.

python -m benchmarks.studies.language_model
"""

from benchmarks.__main__ import main

if __name__ == "__main__":
    main(["small-gpt", "--threads", "2", "--only", "edgewise", "plain-gpt"])
