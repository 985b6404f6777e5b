"""The command line as a person meets it: what it prints, what it refuses and how."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from highway_rl.cli.app import main
from highway_rl.envs import make


def fails(capsys, *args):
    """Run a command that must be refused; return its one line."""
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("highway-rl: ")
    assert "Traceback" not in captured.err
    return captured.err


def test_list_names_every_experiment_and_environment(capsys):
    main(["list"])
    printed = capsys.readouterr().out
    for name in ("example-mdp", "operators", "multi-room", "taxi", "garnet"):
        assert name in printed


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "subcommand"),
        (["fly"], "highway-rl: Unrecognized options: fly. Available subcommands: list, run"),
        (["run", "nothing"], "unknown experiment 'nothing': choose from example-mdp"),
        (["run", "example-mdp", "--scale", "huge"], "invalid choice 'huge'"),
        (["run", "example-mdp", "--seed", "-1"], "seed=-1"),
        (["plot", "example-mdp", "--out", "nowhere"], "highway-rl run example-mdp"),
        (["solve", "txi"], "did you mean 'taxi'?"),
        (["solve", "taxi", "--method", "magic"], "choose from gated, highway, value-iteration"),
        (["solve", "taxi", "--tol", "1e-30"], "ask for tol >="),
        (["solve", "taxi", "--tol", "0"], "tol=0.0"),
        (["solve", "taxi", "--discount", "1.5"], "discount is 1.5: give a number in [0, 1]"),
        (["solve", "chain", "--set", "length"], "write it as name=value"),
        (["solve", "chain", "--set", "size=3"], "chain has no option 'size'"),
        (["solve", "chain", "--set", "length=0"], "length=0: give"),
        (["solve", "chain", "--set", "discount=high"], "discount has dtype"),
        (["solve", "chain", "--set", "discount=None"], "discount has dtype"),
        (["solve", "frozen-lake", "--set", "map_name=lake"], "FrozenLake refuses map_name='lake'"),
        (["solve", "frozen-lake", "--set", "desc=5"], "FrozenLake refuses desc=5"),
        (["solve", "chain", "--save", "solution.txt"], "--save solution.txt: give a name that ends in .npz"),
        (["solve", "chain", "--start", "missing.npz"], "give a file that --save wrote"),
        (["solve", "chain", "--method", "vi", "--time-limit", "5"], "use --method gated, which has one"),
        (["solve", "chain", "--save", "."], "give a name that ends in .npz"),
        (["solve", "CartPole-v1"], "no transition table"),
        (["solve", "NoSuchThing-v1"], "NoSuchThing"),
        (["solve", "missing.npz"], "missing.npz"),
        (["solve", "chain", "--reward", "r.npy"], "leave out --reward"),
        (["solve", "chain", "maze"], "one environment, or one file per action"),
        (["run", "toy-delayed", "--scale", "huge"], ": invalid choice 'huge' for argument '--scale'"),
        (["run", "main", "--minutes", "0"], "minutes=0.0: give"),
        (["run", "main", "--cell", "nope"], "cell 'nope' is no stored run: give the id of one"),
        (["run", "main", "--cell", "nope", "--scale", "smoke"], "as it was: leave --scale out"),
        (["run", "mains", "--cell", "nope"], "unknown experiment 'mains'"),
        (["run", "deep", "--cell", "nope"], "in results/deep, as the tables of `highway-rl report` list them all"),
        (["run", "freeway", "--cell", "nope"], "freeway keeps no runs by id: leave --cell out, or give it with deep"),
        (["run", "run-time", "--cell", "nope"], "or with one of main, gate, depth"),
        (["run", "multi-room", "--minutes", "5"], "multi-room trains no networks: leave --minutes out"),
        (["run", "mains"], "unknown experiment 'mains'"),
        (["run", "toy-delayed", "--workers", "0"], "workers=0: give a whole number >= 1"),
        (["learn", "trace-back", "--set", "delay=2"], "delay=2: give"),
        (["learn", "choice", "--set", "depth=2"], "choice has no option 'depth': choose from delay, width"),
        (["learn", "trace-back", "--epsilon", "1.5"], "epsilon=1.5: give a number in [0, 1]"),
        (["learn", "trace-back", "--method", "magic"], "unknown method 'magic': choose from highway-q-learning"),
        (["learn", "choice", "--method", "retrace", "--chooser", "half"], "retrace has no gate to choose for: leave"),
        (["learn", "choice", "--chooser", "best"], "chooser='best': give one of sample, half"),
        (["learn", "trace-back", "--seed", "99999999999999999999"], "seed=99999999999999999999: give a whole number"),
        (["learn", "trace-back", "--episodes", "-5"], "episodes=-5: give a whole number >= 1"),
        (["learn", "choice", "--set", "noise=0.5"], "noise=0.5: give 2 numbers"),
        (["learn", "nothing"], "unknown task 'nothing': choose from trace-back, choice"),
        (["learn", "CartPole-v1"], "'CartPole-v1' has observation float32 with no number of states: give"),
        (["learn", "minatar/breakout"], "'minatar/breakout' has observation bool with no number of states: give"),
        (["learn", "NoSuchThing-v1"], "NoSuchThing"),
        (["learn", "trace-back", "--seeds", "0"], "seeds=0"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_bad_input_is_one_line_and_exit_code_two(args, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in fails(capsys, *args)


def test_debug_shows_the_traceback():
    with pytest.raises(ValueError, match="unknown experiment"):
        main(["run", "nothing", "--debug"])


def test_run_plot_and_check_agree_on_the_files(capsys, tmp_path):
    """`run` writes rows and figure; `plot` draws the same figure from them; `check` judges them."""
    out = str(tmp_path)
    main(["run", "example-mdp", "--scale", "smoke", "--out", out])
    first = (tmp_path / "example-mdp.png").read_bytes()
    (tmp_path / "example-mdp.png").unlink()
    main(["plot", "example-mdp", "--out", out])
    assert (tmp_path / "example-mdp.png").read_bytes() == first
    capsys.readouterr()
    main(["check", "--out", out, "--json"])
    claims = json.loads(capsys.readouterr().out)
    assert [c["id"] for c in claims][:18] == list(range(1, 19))
    assert all(set(c) == {"id", "statement", "value", "verdict", "scale", "command"} for c in claims)
    verdicts = {c["id"]: c["verdict"] for c in claims}
    assert [verdicts[i] for i in range(1, 7)] == ["holds"] * 5 + ["partly"]
    assert verdicts[9] == verdicts[18] == "not yet run"
    main(["check", "example-mdp", "--out", out])
    assert "does not" not in capsys.readouterr().out


def test_a_corrupt_run_is_refused(capsys, tmp_path):
    (tmp_path / "example-mdp.csv").write_text("not a run\n1,2\n")
    assert "is not a stored run" in fails(capsys, "check", "--out", str(tmp_path))


@pytest.mark.parametrize("name", ["example-mdp", "operators", "multi-room"])
def test_rows_of_another_version_are_refused(name, capsys, tmp_path):
    """A file that is a stored run, but without the columns or the rows that figures and claims read."""
    (tmp_path / f"{name}.csv").write_text('# {"scale": "paper"}\noperator,state,value\nhighway,doors,2\n')
    for command in ("check", "plot"):
        said = fails(capsys, command, name, "--out", str(tmp_path))
        assert f"{name}.csv lacks rows or columns" in said
        assert f"highway-rl run {name}" in said


def test_a_bug_is_one_line_too(capsys, monkeypatch):
    monkeypatch.setattr("highway_rl.cli.planning.load", lambda *_: {}["nothing"])
    assert "KeyError: 'nothing' (a bug; --debug shows where)" in fails(capsys, "solve", "chain")
    with pytest.raises(KeyError):
        main(["solve", "chain", "--debug"])

    def hungry(*_):
        raise MemoryError("Unable to allocate 9 PiB")

    monkeypatch.setattr("highway_rl.cli.planning.load", hungry)
    assert "out of memory: Unable to allocate 9 PiB" in fails(capsys, "solve", "chain")
    with pytest.raises(MemoryError):
        main(["solve", "chain", "--debug"])


def test_solve_prints_one_row_per_method(capsys):
    main(["solve", "taxi", "--compare", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [r["method"] for r in rows][:3] == ["gated(ordered)", "highway", "value-iteration"]
    assert all(0 < r["bound"] <= 1e-6 and r["rows"] >= r["distinct"] > 0 for r in rows)
    main(["solve", "taxi", "--method", "highway"])
    assert "500 states, 6 actions" in capsys.readouterr().out


def test_solve_starts_from_a_solution_and_stops_in_time(capsys, tmp_path):
    main(["solve", "garnet", "--save", str(tmp_path / "first.npz")])
    main(["solve", "garnet", "--start", str(tmp_path / "first.npz"), "--time-limit", "60", "--json"])
    (row,) = json.loads("[" + capsys.readouterr().out.split("[", 1)[1])
    assert row["iterations"] == 0
    assert row["bound"] <= 1e-6
    main(["solve", "garnet", "--time-limit", "1e-9"])
    assert "not converged" in capsys.readouterr().out


def test_solve_says_when_there_is_no_certificate(capsys):
    main(["solve", "frozen-lake-8x8", "--discount", "1"])
    assert "no certificate" in capsys.readouterr().out


def test_solve_takes_files(capsys, tmp_path):
    """A dense .npz, scipy's own sparse file with rewards beside it, and one such file per action give the same."""
    rng = np.random.default_rng(0)
    P, R = rng.dirichlet(np.ones(6), (6, 2)), rng.normal(size=(6, 2))
    np.savez(tmp_path / "dense.npz", P=P, R=R)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(P.reshape(12, 6)))
    np.save(tmp_path / "reward.npy", R)
    extra = ["--discount", "0.9", "--tol", "1e-9", "--json", "--save"]
    main(["solve", str(tmp_path / "dense.npz"), *extra, str(tmp_path / "a.npz")])
    main(
        [
            "solve",
            str(tmp_path / "sparse.npz"),
            "--reward",
            str(tmp_path / "reward.npy"),
            *extra,
            str(tmp_path / "b.npz"),
        ]
    )
    for action in range(2):
        sp.save_npz(tmp_path / f"action{action}.npz", sp.csr_array(P[:, action]))
    files = [str(tmp_path / f"action{action}.npz") for action in range(2)]
    main(["solve", *files, "--reward", str(tmp_path / "reward.npy"), *extra, str(tmp_path / "c.npz")])
    capsys.readouterr()
    a, b, c = (np.load(tmp_path / f"{name}.npz") for name in "abc")
    assert np.abs(a["value"] - c["value"]).max() <= 2e-9
    assert np.abs(a["value"] - b["value"]).max() <= 2e-9
    assert a["policy"].tolist() == b["policy"].tolist()


@pytest.mark.long
def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -c 'from highway_rl.cli.app import main; main()' list"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f"{command} | true"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_watch_films_a_game_and_play_needs_a_terminal(capsys, tmp_path):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):  # as users run it
        main(["watch", "breakout", "--steps", "20", "--out", str(tmp_path / "b.gif")])
    assert (tmp_path / "b.gif").read_bytes()[:3] == b"GIF"
    assert "film:" in capsys.readouterr().out
    assert "needs a terminal" in fails(capsys, "play", "breakout")
    assert "game" in fails(capsys, "watch", "pong", "--out", str(tmp_path / "b.gif"))
    assert "is an environment to learn, not a model to solve" in fails(capsys, "solve", "minatar/breakout")


def test_games_by_name():
    """`make("minatar/…")` gives an `Env`; a delay makes it MinAtar-Delay."""
    game = make("minatar/breakout", sticky=0.0, delay="end")
    assert game.spec.num_actions == 6
    assert game.spec.observation.feature.shape == (64,)
    with pytest.raises(ValueError, match="minatar/breakout"):
        make("minatar/breakout", colour=1)
    with pytest.raises(ValueError, match="unknown environment"):
        make("minatar/pong")
