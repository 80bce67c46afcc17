"""Edgewise's transformer beside a GPT in plain PyTorch: 4 layers, 4 heads, width 128, context 64, batch 12.

python benchmarks/language_model.py
"""

from edgewise.apps.command.main import main

if __name__ == "__main__":
    main(["bench", "small-gpt", "--threads", "2", "--only", "edgewise", "plain-gpt"])
