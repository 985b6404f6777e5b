"""doctor as a person meets it: what is here, what is broken and why, what to type."""

import tomllib
from pathlib import Path

import jax
import pytest
from training import strictly

from highway_rl.cli import doctor
from highway_rl.cli.app import main
from highway_rl.cli.doctor import CORE, CUDA, OPTIONAL, Part, imports

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HERE = {"version": "1.0", "why": ""}


def part(name):
    return Part(name, name, "something", f"pip install {name}")


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """Packages that are broken in every way."""
    ways = {
        "raises": 'raise OSError("libfoo.so:\\n  cannot open")',
        "needs": "import nothing_of_this_name",
        "leaves": "raise SystemExit(4)",
        "dies": "import os; os._exit(7)",
        "hangs": "import time; time.sleep(60)",
        "talks": 'print("hello")\n__version__ = "2.5"',
    }
    for name, code in ways.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)


def found(*names):
    return [(row["version"], row["why"]) for row in imports([part(name) for name in names])]


def test_what_is_broken_says_why_and_stops_nothing(fakes):
    assert found("raises", "needs", "leaves", "dies", "nowhere_at_all", "dies", "talks") == [
        ("", "OSError: libfoo.so: cannot open"),
        ("", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("", "SystemExit: 4"),
        ("", "Python ended with exit code 7 while it was imported"),
        ("", "not here"),
        ("", "Python ended with exit code 7 while it was imported"),
        ("2.5", ""),
    ]


def test_an_import_that_hangs_is_left(fakes, monkeypatch):
    monkeypatch.setattr(doctor, "PATIENCE", 1.0)
    assert found("talks", "hangs") == [("2.5", ""), ("", "its import took longer than 1 seconds")]


def test_no_other_python(monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert "no other Python could be started" in found("json")[0][1]


def test_versions_are_those_installed():
    rows = list(imports([p for p in CORE if p.name in ("numpy", "safetensors", "jaxlib")]))
    assert all(row["version"][0].isdigit() and not row["why"] for row in rows)


def test_extras_and_core_packages_are_the_projects():
    extras = {p.add.split("[")[1].split("]")[0] for p in OPTIONAL if "highway-rl[" in p.add} | {
        CUDA.split("[")[1].split("]")[0]
    }
    assert extras <= set(PROJECT["optional-dependencies"])
    needed = " ".join(PROJECT["dependencies"])
    assert all(p.name in needed for p in CORE if p.name not in ("highway-rl", "jaxlib"))


@pytest.fixture
def told(monkeypatch):
    """An installation by name of package; what is not named is here."""
    what = {}
    monkeypatch.setattr(doctor, "imports", lambda parts: [what.get(p.name, HERE) for p in parts])
    return what


def test_the_report_is_shown_with_what_to_type(told, capsys):
    told["gymnasium[box2d]"] = told["matplotlib"] = {"version": "", "why": "not here"}
    told["ale-py"] = {"version": "", "why": "ImportError: [Errno 2] no ROMs"}
    main(["doctor", "--quick"])
    said = capsys.readouterr().out
    for line in ('  pip install "gymnasium[box2d]"', '  pip install "highway-rl[plots]"', "  pip install ale-py"):
        assert line in said
    assert "pip install minigrid" not in said
    assert "ImportError: [Errno 2] no ROMs" in said
    assert "gymnasium[box2d]" in said.split("device:")[0]
    assert "CPU" in said
    assert said.splitlines()[-1] == "the core works"


def test_a_broken_core_is_exit_code_one(told, capsys, monkeypatch):
    told["equinox"] = {"version": "", "why": "ImportError: no"}
    assert fails() == 1
    assert "the core does not work: equinox: ImportError: no; pip install equinox" in capsys.readouterr().out
    told.clear()
    monkeypatch.setattr(jax, "devices", lambda: {}["cuda"])
    assert fails() == 1
    assert "jax has no device: KeyError: 'cuda'" in capsys.readouterr().out


def fails():
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--quick"])
    return stop.value.code


def test_without_tables(told, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_rich", lambda: False)
    told["minigrid"] = {"version": "", "why": "not here"}
    main(["doctor", "--quick"])
    assert "minigrid  –  MiniGrid-…, BabyAI-…  not here\n" in capsys.readouterr().out


def test_a_gpu_that_is_not_used_is_said(told, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_nvidia", lambda: True)
    main(["doctor", "--quick"])
    said = capsys.readouterr().out
    assert "there is an NVIDIA GPU, and jax does not use it" in said
    assert 'pip install "highway-rl[cuda]"  # the GPU' in said


@pytest.mark.long
def test_speed_is_measured_and_json_holds_it(told, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "TIMED", {"late": "compiled", "Nothing-v7": "through Gymnasium"})
    with pytest.raises(SystemExit):
        main(["doctor", "--json"])
    report = strictly(capsys.readouterr().out)
    first, second = report["speed"]
    assert first["per_second"] > 0
    assert first["why"] == ""
    assert second["per_second"] is None
    assert second["why"].startswith("ValueError: unknown environment 'Nothing-v7'")
    assert report["broken"] == [f"training on Nothing-v7: {second['why']}"]
    assert report["device"]["kind"] == "cpu"
    assert {row["name"] for row in report["core"]} == {p.name for p in CORE}


def test_tasks_that_are_timed_exist():
    from highway_rl.envs.registry import make_env

    assert all(make_env(task).spec.num_actions > 1 for task in doctor.TIMED)
