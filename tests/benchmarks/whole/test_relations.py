"""Layers for edges of several kinds: who takes part."""

import pytest
import torch

from benchmarks.whole import relations


@pytest.mark.parametrize("words", [["1", "140", "--bases=0"], ["--hgt", "4", "--compiled"]])
def test_every_line_has_the_columns_of_the_head_and_a_compiled_peer(words, monkeypatch, capsys):
    pytest.importorskip("torch_geometric")
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda run: compiled.append(run) or run)
    monkeypatch.setattr(relations.sys, "argv", ["relations", "60", "400", *words])
    threads = torch.get_num_threads()
    relations.main()
    torch.set_num_threads(threads)
    head, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len([word for word in words if word.isdigit()])
    assert {line.count("|") for line in lines} == {head.count("|")}
    assert len(compiled) == len(lines)
