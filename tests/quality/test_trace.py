"""What a line of the trace means, and what is said of lines that mean nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.quality import synthetic
from tests.quality.trace import BadTrace, read_nodes, read_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,96000,393216,8,G2\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
    "x,12000,16384,1,460,,LS\ny,1000,1024,0,0,,BE\nz,12000,16384,1,460,,LS\nw,1000,1024,8,1000,G2|A10,BE\n"
)


@pytest.fixture
def files(tmp_path):
    def written(nodes=NODES, pods=PODS):
        (tmp_path / "nodes.csv").write_text(nodes)
        (tmp_path / "pods.csv").write_text(pods)
        return tmp_path / "nodes.csv", tmp_path / "pods.csv"

    return written


def test_pods_that_are_alike_are_one_kind(files):
    nodes_file, pods_file = files()
    nodes = read_nodes(nodes_file)
    workload = read_pods(pods_file, nodes)
    assert nodes.capacity == 10_000
    assert nodes.left.tolist() == [[1000] * 2 + [0] * 6, [1000] * 8]
    assert workload.pods.tolist() == [0, 1, 0, 2]
    assert workload.asked.tolist() == [460, 0, 8000]
    assert [nodes.models[sort] for sort in nodes.sort] == ["P100", "G2"]
    assert workload.suits[2].tolist() == [model == "G2" for model in nodes.models]
    assert workload.suits[0].all()


def test_a_list_without_models_and_times_is_read(files):
    nodes_file, pods_file = files(pods="name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,2,1,1000\n")
    assert read_pods(pods_file, read_nodes(nodes_file)).suits.all()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("", "line 1: there is no column sn, cpu_milli"),
        ("sn,cpu_milli,memory_mib,gpu\na,1,1,1\n", "line 1: there is no column model"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "there is nothing after line 1"),
        (NODES + "c,many,1,1,G2\n", "line 4: column cpu_milli: 'many' is not an integer"),
        (NODES + "c,-1,1,1,G2\n", "line 4: column cpu_milli: -1 is not between 0"),
        (NODES + "c,1,1,1,\n", "line 4: column model: is empty"),
        (NODES + "c,1,1,1\n", "line 4: not as many values as line 1 has columns"),
        (NODES + "a,1,1,1,G2\n", "line 4: column sn: 'a' is there twice"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n", "no node has a GPU"),
    ],
)
def test_a_bad_list_of_nodes_names_file_line_and_column(files, nodes, message):
    nodes_file, _ = files(nodes=nodes)
    with pytest.raises(BadTrace) as caught:
        read_nodes(nodes_file)
    assert str(nodes_file) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v,1,1,1,1001,,LS", "line 6: column gpu_milli: 1001 is not between 1 and 1000"),
        ("v,1,1,1,0,,LS", "line 6: column gpu_milli: 0 is not between 1 and 1000"),
        ("v,1,1,2,500,,LS", "line 6: column gpu_milli: 500 of each of 2 GPUs"),
        ("v,1,1,,500,,LS", "line 6: column num_gpu: is empty"),
        ("v,1.5,1,1,500,,LS", "line 6: column cpu_milli: '1.5' is not an integer"),
        ("v,1,1,1,500,,LS,more", "line 6: not as many values as line 1 has columns"),
    ],
)
def test_a_bad_list_of_pods_names_file_line_and_column(files, line, message):
    nodes_file, pods_file = files(pods=PODS + line + "\n")
    with pytest.raises(BadTrace) as caught:
        read_pods(pods_file, read_nodes(nodes_file))
    assert str(pods_file) in str(caught.value)
    assert message in str(caught.value)


def test_the_command_says_what_is_wrong_with_a_file(files):
    nodes_file, pods_file = files(pods=PODS + "v,1,1,1,one,,LS\n")
    command = [sys.executable, "-m", "tests.quality", "--nodes", nodes_file, "--pods", pods_file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"{pods_file}: line 6: column gpu_milli: 'one' is not an integer\n"


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(BadTrace, match="No such file"):
        read_nodes(tmp_path / "nodes.csv")


def test_the_look_alike_has_the_statistics_that_are_asked_for(tmp_path):
    lines = synthetic.pods(20_000, several=0.3, part=0.4, without=0.25, spec=0.2)
    synthetic.write(tmp_path, synthetic.nodes(1213), lines)
    nodes = read_nodes(tmp_path / "nodes.csv")
    workload = read_pods(tmp_path / "pods.csv", nodes)
    asked = workload.asked[workload.pods]
    count, amount = workload.count[workload.pods], workload.amount[workload.pods]
    assert abs(nodes.capacity / 1000 - 6212) < 20
    assert asked[count > 1].sum() / asked.sum() == pytest.approx(0.3, abs=0.05)
    assert asked[(amount > 0) & (amount < 1000)].sum() / asked.sum() == pytest.approx(0.4, abs=0.05)
    assert (amount == 0).sum() / (amount > 0).sum() == pytest.approx(0.25, abs=0.03)
    named = ~workload.suits[workload.pods].all(axis=1)
    assert named[amount > 0].mean() == pytest.approx(0.2, abs=0.03)
    assert lines == synthetic.pods(20_000, several=0.3, part=0.4, without=0.25, spec=0.2)
    assert np.array_equal(np.sort(nodes.devices), np.sort(read_nodes(tmp_path / "nodes.csv").devices))
