"""The index of the shipped profiles is current, and a wrong, old or missing one changes no answer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from occupancy_cli.data_files import shipped_dir
from occupancy_cli.errors import InputError, UnknownNameError
from occupancy_cli.gpu import profiles, shipped_index
from occupancy_cli.gpu.profiles import list_gpus, load_gpu, normalized
from occupancy_cli.gpu.shipped_index import INDEX, checksum_of, index_text

SHIPPED = shipped_dir("hw_profiles")


def test_the_shipped_index_is_current() -> None:
    """Every file is checked against its schema on the way: a shipped profile that is wrong fails here."""
    written = (SHIPPED / INDEX).read_text()
    assert written == index_text(SHIPPED), "run `python -m occupancy_cli.gpu.shipped_index`"


def test_it_knows_every_name() -> None:
    files = shipped_index.shipped_index().files
    for gpu in list_gpus():
        for name in (gpu.id, gpu.name, *gpu.aliases, *gpu.device_names):
            assert f"{gpu.id}.yaml" in files[normalized(name)]


def test_a_checksum_does_not_depend_on_line_ends() -> None:
    assert checksum_of(b"a: 1\r\nb: 2\r\n") == checksum_of(b"a: 1\nb: 2\n") != checksum_of(b"a: 1\nb: 3\n")


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the shipped folder that stands in for it."""
    folder = tmp_path / "hw_profiles"
    shutil.copytree(SHIPPED, folder)
    for module in (profiles, shipped_index):
        monkeypatch.setattr(module, "shipped_dir", lambda _: folder)
    shipped_index.shipped_index.cache_clear()
    yield folder
    shipped_index.shipped_index.cache_clear()


def test_without_an_index_the_files_answer(copied: Path) -> None:
    (copied / INDEX).unlink()
    assert load_gpu("NVIDIA H100 80GB HBM3").id == "h100-sxm"


def test_a_profile_that_is_not_in_it_is_found(copied: Path) -> None:
    text = (copied / "t4.yaml").read_text()
    text = text.replace("id: t4", "id: t5").replace("t4-16gb", "tee-five").replace("name: T4", "name: T5")
    (copied / "t5.yaml").write_text(text.replace("[Tesla T4]", "[Tesla T5]"))
    assert load_gpu("tee five").id == load_gpu("t5").id == "t5"


def test_a_name_that_moved_is_followed(copied: Path) -> None:
    t4, l4 = copied / "t4.yaml", copied / "l4.yaml"
    t4.write_text(t4.read_text().replace("t4-16gb", "tee-four"))
    l4.write_text(l4.read_text().replace("[l4-24gb", "[t4-16gb, l4-24gb"))
    assert load_gpu("t4-16gb").id == "l4"
    l4.unlink()
    with pytest.raises(UnknownNameError):
        load_gpu("l4-24gb")


def test_a_shipped_file_that_was_edited_is_checked_like_any_other(copied: Path) -> None:
    path = copied / "t4.yaml"
    path.write_text(path.read_text().replace("sm_count:", "sm_cuont:"))
    with pytest.raises(InputError, match=r"t4\.yaml:\d+:3: values\.sm_cuont: unknown key 'sm_cuont'\nDid you mean sm_"):
        load_gpu("t4")


def test_a_shipped_gpu_needs_no_pydantic_and_a_wrong_file_does() -> None:
    code = (
        "import sys\nfrom occupancy_cli import load_gpu\nload_gpu(sys.argv[1], sys.argv[2:])\n"
        "print('pydantic' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, "5090"], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
