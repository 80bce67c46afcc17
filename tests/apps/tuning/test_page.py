import re
from pathlib import Path

import pytest

from edgewise.apps.command.main import main
from edgewise.apps.tuning import study

pytest.importorskip("optuna", reason="edgewise tune needs it")


def test_the_page_shows_every_trial_and_what_mattered_and_makes_no_request(capsys):
    tiny = ["--train.steps=3", "--evaluation.every=1", "--model.width=8"]
    searched = ["--search=optimizer.learning_rate=0.0001..0.5", "--search=model.layer=gcn,sage-mean,gin"]
    assert main(["tune", "karate-sage", *tiny, *searched, "--trials=16"]) == 0
    page = Path("runs/karate-sage-tuned/report.html").read_text()
    assert page.count("<svg") == 3  # history, importance, parallel coordinates
    for text in ("16 trials", "optimizer.learning_rate", "sage-mean", "PED-ANOVA", "edgewise train"):
        assert text in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page) and "<script" not in page
    assert "read 2 times" not in page


def test_trials_that_did_not_run_are_not_counted_among_those_that_were_stopped_early(monkeypatch):
    train = study.carry_out

    def carry_out(config, run, watch):
        if run.parent.name == "1":
            raise RuntimeError("shapes cannot be multiplied")
        return train(config, run, watch)

    monkeypatch.setattr(study, "carry_out", carry_out)
    assert main(["tune", "karate-sage", "--train.steps=2", "--search=model.depth=1..3", "--trials=2"]) == 0
    page = Path("runs/karate-sage-tuned/report.html").read_text()
    assert "2, 0 stopped early, 1 did not run" in page and "shapes cannot be multiplied (RuntimeError)" in page
