"""Targets are found by name or by file, and wrong descriptions are refused with what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import pytest

import eqsat
from eqsat.errors import EqsatError
from eqsat.targets.catalogue import find_target, parsed, smallest_with, target_names, target_of
from eqsat.targets.gpu import MOVED, MULTIPLIED

NAMES = [
    "a100",
    "a100-40gb",
    "a6000",
    "b200",
    "h100",
    "h200",
    "rtx6000pro",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "v100",
]

DEVICES = Path(__file__).parent.parent.parent / "eqsat" / "targets" / "devices"

TEXT = (DEVICES / "h100.toml").read_text()


def test_there_is_a_target_for_the_host_and_for_each_described_device() -> None:
    assert target_names() == ["cpu", *NAMES] == eqsat.target_names()


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_those_of_accelerators(name: str) -> None:
    target = find_target(name)
    assert target.name == name
    machine = target.machine
    assert 1e12 < machine.elements < machine.flops < 1e15
    assert 5e11 < machine.bytes < 1e13
    assert target.memory is not None
    assert 14e9 < target.memory < 2e11
    assert target.usable_memory is not None
    assert target.usable_memory < target.memory


def test_the_rates_of_an_h100_are_those_of_its_data_sheet() -> None:
    """67 TFLOPS in single precision, 494 in TF32, 3.35 TB/s (NVIDIA's data sheet of the H100 SXM)."""
    machine = find_target("h100").machine
    assert machine.flops == pytest.approx(MULTIPLIED * 67e12, rel=0.01)
    assert machine.reduced_flops == pytest.approx(MULTIPLIED * 494e12, rel=0.1)
    assert machine.bytes == pytest.approx(MOVED * 3.35e12, rel=0.01)


def test_only_products_of_single_precision_and_less_are_faster_by_default() -> None:
    machine = find_target("h100").machine
    assert machine.product_flops("float32", precise=False) == machine.reduced_flops > machine.flops
    assert machine.product_flops("bf16", precise=False) == machine.reduced_flops
    assert machine.product_flops("float32", precise=True) == machine.flops
    assert machine.product_flops("float64", precise=False) == machine.flops
    volta = find_target("v100").machine  # it has no TF32
    assert volta.product_flops("float32", precise=False) == volta.flops


def test_a_device_that_is_present_is_its_own_target() -> None:
    (device, *_) = jax.devices("cpu")
    assert find_target("cpu") == target_of(device)
    assert find_target("cpu").absent is None
    assert find_target("cpu").sharding is None  # it is JAX's default device


@dataclass(frozen=True)
class Device:
    """A device that says what kind it is."""

    device_kind: str
    platform: str = "gpu"
    client: None = None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("Tesla V100-PCIE-16GB", "v100"),
        ("NVIDIA GeForce RTX 3090", "cuda"),
    ],
)
def test_a_present_gpu_is_known_by_what_jax_calls_it(kind: str, name: str) -> None:
    device: Any = Device(kind)
    target = target_of(device)
    assert target.name == name
    assert target.absent is None


def test_products_may_take_more_from_hopper_on() -> None:
    """cuBLAS's documentation, "cublasSetWorkspace"."""
    found = {name: find_target(name).machine.product_workspace for name in ("v100", "a100", "h100", "b200")}
    assert found == {"v100": 4 << 20, "a100": 4 << 20, "h100": 32 << 20, "b200": 32 << 20}


def test_a_file_of_the_user_describes_a_target(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TEXT.replace("core_count = 132", "core_count = 66"))
    mine, known = find_target(str(file)), find_target("h100")
    assert mine.name == "mine"
    assert mine.machine.flops == known.machine.flops / 2
    assert mine == find_target(file)
    assert mine != known


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('platform = "cuda"', 'platform = "abacus"', "platform is 'cuda' or 'tpu', not 'abacus'"),
        ("memory = 84_942_979_072", "", "memory is a number, not None"),
        ("core_count = 132", 'core_count = "many"', "core_count is a number, not 'many'"),
        ("core_count = 132", "core_count = 132\ncores = 1", "it has no cores"),
        ("[facts]", "[fact]", "there is no table [facts]"),
        ('description = "NVIDIA H100 80GB HBM3"', "", "description is what XLA calls the device"),
        ("[facts]", 'kinds = "H100"\n[facts]', "kinds is a list of names that JAX has for the device"),
        ("[facts]", "topology = 3\n[facts]", "topology is the name of a topology"),
        ("[facts]", "[facts", "describes no target: Expected"),
        ("clock_rate_ghz = 1.98", "clock_rate_ghz = inf", "clock_rate_ghz is a number, not inf"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(before: str, after: str, message: str) -> None:
    assert before in TEXT
    with pytest.raises(EqsatError) as raised:
        parsed(TEXT.replace(before, after), "mine", "mine.toml")
    assert str(raised.value).startswith("mine.toml describes no target: ")
    assert message in str(raised.value)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(EqsatError, match=r"no target 'gtx'. The targets are cpu, a100, "):
        eqsat.optimize(lambda x: x, target="gtx")
    with pytest.raises(EqsatError, match="can't be read"):
        eqsat.optimize(lambda x: x, target="nowhere/gtx.toml")
    with pytest.raises(TypeError, match="not 3"):
        eqsat.optimize(lambda x: x, target=3)  # type: ignore[call-overload]


def test_the_smallest_device_with_enough_memory_is_found() -> None:
    assert str(smallest_with(10**9, "cuda")) == "v100"
    assert str(smallest_with(90 * 10**9, "cuda")) == "h200"
    assert str(smallest_with(20 * 10**9, "tpu")) == "tpu-v6e"
    assert smallest_with(10**12, "cuda") is None
