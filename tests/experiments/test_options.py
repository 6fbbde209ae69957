"""Unknown names and impossible values answer with one line that names the nearest valid one."""

from __future__ import annotations

import pytest

from experiments import overrides
from experiments.__main__ import main
from experiments.compose import compose
from traces.errors import InputError

# word(s) -> what the one line must say
BAD = {
    "evictr=lru": "unknown option 'evictr'; did you mean 'evictor'?",
    "evictor=lur": "unknown evictor 'lur'; did you mean 'lru'?",
    "evictor=lru,lifecicle": "unknown evictor 'lifecicle'; did you mean 'lifecycle'?",
    "router=least_load": "unknown router 'least_load'; did you mean 'least_loaded'?",
    "router=prefix_aware router.max_extra=3": "'max_extra'; did you mean 'max_extra_requests'?",
    "evictor=lru evictor.window=3": "unknown option of evictor lru 'window'; allowed: (none)",
    "evictor=s3_fifo(smal_ratio=0.2)": "'smal_ratio'; did you mean 'small_ratio'?",
    "evictor=s3_fifo(small_ratio)": "expected option=value inside the parentheses, got 'small_ratio'",
    "evictor=lru(": "an empty name or an unclosed bracket in a list",
    "evictor=lru,": "an empty name or an unclosed bracket in a list",
    "evictor=a/b": "evictor=a/b: expected a policy's name, or name(option=value, ...)",
    "evictor.a.b=1": "a policy's options have no parts; write evictor.NAME=VALUE",
    "engine.max_num_sqs=3": "'engine.max_num_sqs'; did you mean 'engine.max_num_seqs'?",
    "egine.max_num_seqs=3": "'egine.max_num_seqs'; did you mean 'engine.max_num_seqs'?",
    "engine.max_num_seqs=abc": "engine.max_num_seqs=abc: expected a whole number",
    "engine.max_num_seqs=2.5": "engine.max_num_seqs=2.5: expected a whole number",
    "engine.max_num_seqs=true": "engine.max_num_seqs=true: expected a whole number",
    "engine.max_num_seqs=0": "engine.max_num_seqs=0: expected a whole number of at least 1",
    "engine.fast_forward=1": "engine.fast_forward=1: expected true or false",
    "engine.prefix_cache=radx": "unknown engine.prefix_cache 'radx'; did you mean 'radix'?",
    "engine.gpu_memory_utilization=90": "utilization=90.0: expected a number from 0.05 to 1.0",
    "engine.max_num_batched_tokens=8": "is below engine.max_num_seqs=256",
    "engine.num_gpu_blocks=[1]": "engine.num_gpu_blocks=[1]: expected a whole number or null",
    "host_tier.write=write_trough": "unknown host_tier.write 'write_trough'; did you mean 'write_through'?",
    "host_tier.ratio=big": "host_tier.ratio=big: expected a number",
    "load.loop=opn": "unknown load.loop 'opn'; did you mean 'open'?",
    "load.concurency=8": "'load.concurency'; did you mean 'load.concurrency'?",
    "load.rate_per_s=0": "load.rate_per_s=0.0: expected more than 0",
    "load=3": "unknown option 'load'; did you mean 'load.loop'?",
    "replicas=0": "replicas=0: expected a whole number of at least 1",
    "seeds=0": "seeds=0: expected a count from 1 to 10000, or a list of seeds",
    "seeds=[1,1]": "a seed is given twice",
    "seeds=[]": "expected at least one seed",
    "seeds=[-1]": "expected whole numbers of at least 0",
    "seeds=many": "seeds=many: expected a list",
    "sweep=concurency": "unknown sweep 'concurency'; did you mean 'concurrency'?",
    "+sweep=concurrency,memry": "unknown sweep 'memry'; did you mean 'memory'?",
    "experiment=mian": "unknown experiment 'mian'; did you mean 'main'?",
    "executor=rai": "unknown executor 'rai'; did you mean 'ray'?",
    "executor.jobs=0": "executor.jobs=0: expected a whole number of at least 1",
    "slo.ttft=3": "unknown option 'slo.ttft'; did you mean 'slo.ttft_ms'?",
    "slo.ttft_ms=-1": "slo.ttft_ms=-1.0: expected more than 0",
    "tp=0": "tp=0: expected a whole number of at least 1",
    "name=a/b": "name='a/b': expected a word without spaces and slashes",
    "policy_path=/no/such/folder": "policy_path=/no/such/folder: no such folder",
    "+load.concurrency=3": "write load.concurrency=3 without '+'",
    "~load": "options cannot be deleted",
    "load.concurrency": "expected option=value",
    "load.concurrency=4 load.concurrency=8": "load.concurrency: given twice",
    "load.concurrency=int(": "load.concurrency=int(: not a value",
    "load.concurrency=glob(*)": "only values, comma lists and range(start,stop,step) are read here",
    "load.concurrency=range(1,1000000)": "more than 1000 values",
    "axes.load.concurency=[1,2]": "axes: unknown option 'load.concurency'; did you mean 'load.concurrency'?",
    "axes.load.concurrency=[]": "axes.load.concurrency=[]: expected a list of values",
    "axes.seeds=[1,2]": "axes: seeds cannot be swept",
    "axes=3": "expected axes={OPTION:[VALUE,...]}",
    "hydra.searchpath=x": "unknown option 'hydra.searchpath'",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_words_answer_in_one_line_and_change_nothing(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words.split(" ")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert BAD[words] in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "word",
    [
        "name=${oc.env:HOME}",
        "workload=${oc.env:HOME}",
        "load.concurrency=${replicas}",
        "engine=${oc.env:HOME}",
        "evictor=${name}",
        "axes={load.concurrency:${seeds}}",
    ],
)
def test_interpolations_are_refused(word: str):
    with pytest.raises(InputError, match="interpolations are not read from the command line"):
        compose([word])


@pytest.mark.parametrize(
    "word", ["_target_=os.system", "evictor._target_=os.system", "+engine._target_=x", "axes._target_=[1]"]
)
def test_no_word_names_code(word: str):
    with pytest.raises(InputError, match="policies are chosen by name only"):
        compose([word])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("policy_path: .", "policy_path: no option of a config file"),
        ("engine: {_target_: os.system}", "engine._target_: no option of a config file"),
        ("name: ${oc.env:HOME}", "interpolations are not read"),
        ("enigne: {}", "unknown option 'enigne'; did you mean 'engine'?"),
    ],
)
def test_config_files_hold_plain_options_only(line: str, said: str, tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "config.yaml").write_text("defaults: [_self_, {experiment: main}]\n")
    (tmp_path / "experiment" / "main.yaml").write_text(f"# @package _global_\nevictor: lru\n{line}\n")
    monkeypatch.setattr("experiments.compose.CONF", tmp_path)
    monkeypatch.setattr(overrides, "CONF", tmp_path)
    with pytest.raises(InputError) as error:
        compose([])
    assert said in str(error.value)


def test_unknown_commands_name_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert main(["rnu"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown command 'rnu'; did you mean 'run'?")
    assert main(["plot", "--figure", "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["list", "polcies"], ["report", "nothing"], ["trace", "abc"], ["list", "policies", "policy_path=/none"]],
)
def test_every_command_refuses_unknown_names_in_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
