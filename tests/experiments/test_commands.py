"""list, doctor and bench say what is there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calibration import catalog
from calibration.gpus import GPUS
from experiments import doctor
from experiments.__main__ import main
from policies import registry
from policies.api import FAMILIES, OPTION
from traces import workloads

ROOT = Path(__file__).parents[2]
SLOW = ("hydra", "omegaconf", "matplotlib", "pandas", "simpy", "scipy")


def test_list_names_everything_there_is(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for family in FAMILIES:
        for name in registry.names(family):
            assert f"{OPTION[family]}={name} " in out
            for option in registry.options(family, name):
                assert f"{OPTION[family]}.{option}=" in out
    for name in workloads.names():
        assert f"workload={name} " in out
    assert "experiment=main" in out
    assert "+sweep=concurrency" in out
    assert main(["list", "profiles"]) == 0
    out = capsys.readouterr().out
    for name in catalog.names():
        assert f"profile={name}\n" in out
    assert (
        "gpu= tp= model= precision=  replace parts of the profile; a cell not listed is priced by a roofline"
        in out
    )
    assert all(gpu in out for gpu in GPUS)
    assert main(["list", "options"]) == 0
    assert "engine.max_num_seqs=256  int" in capsys.readouterr().out


def test_list_finds_a_users_own_policies(tmp_path: Path, capsys):
    source = (ROOT / "policies" / "evictors" / "lru.py").read_text()
    (tmp_path / "mine.py").write_text(source)
    assert main(["list", "evictor", f"policy_path={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "evictor=mine " in out
    assert "router=" not in out


def test_list_loads_nothing_slow():
    code = (
        "import sys; from experiments.__main__ import main; main(['list']);"
        f"print([m for m in {SLOW} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_doctor_finds_this_installation_sound(tmp_path: Path, capsys):
    assert main(["doctor", "--store", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    assert "BROKEN" not in out
    for name in ("python", "versions", "packages", "profiles", "workloads", "policies", "store", "extra ray"):
        assert f" {name}: " in out
    assert list(tmp_path.iterdir()) == []


def test_doctor_names_what_is_broken(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(
        doctor.importlib.metadata, "packages_distributions", lambda: {"traces": ["foreserve", "traces"]}
    )
    (tmp_path / "runs").write_text("a file")
    monkeypatch.setattr(catalog, "PROFILES", tmp_path)
    assert main(["doctor", "--store", str(tmp_path / "runs")]) == 1
    out = capsys.readouterr().out
    assert "BROKEN   packages: the name traces also belongs to traces; uninstall it" in out
    assert "BROKEN   profiles: no profile is there" in out
    assert "BROKEN   store: " in out


def test_bench_counts_what_it_times(tmp_path: Path, capsys):
    rows = "".join(f"{i}.5,{100 + i},{5 + i % 9}\n" for i in range(60))
    (tmp_path / "w.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    began = time.perf_counter()
    assert main(["bench", "sim", "--workload", str(tmp_path / "w.csv"), "--json", "evictor=sieve"]) == 0
    elapsed_s = time.perf_counter() - began
    got = json.loads(capsys.readouterr().out)
    assert (got["requests"], got["completed"], got["loop"], got["kv_blocks"]) == (60, 60, "open", 25_000)
    assert got["policies"]["evictors"] == "sieve"
    assert got["steps"] > 60
    assert 0 <= got["fast_forward_ratio"] <= 1
    assert 0 < got["simulation_s"] < elapsed_s
    assert 0 < got["cpu_s"] < elapsed_s
    assert got["requests_per_s"] == pytest.approx(60 / got["simulation_s"], rel=0.01)
    assert got["steps_per_s"] == pytest.approx(got["steps"] / got["simulation_s"], rel=0.01)
    assert got["peak_rss_mb"] > 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evictor=lru,sieve"], "bench: the words name 2 runs (2 arms); name one"),
        (["workload=weka"], "bench: name the workload with --workload"),
        (["engine.max_num_seq=3"], "did you mean 'engine.max_num_seqs'?"),
    ],
)
def test_bench_times_one_run(words: list[str], said: str, capsys):
    assert main(["bench", "sim", "--workload", "weka", *words]) == 2
    assert said in capsys.readouterr().err
