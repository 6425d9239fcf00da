from pathlib import Path

import pytest

from cli.stack.home import Place, ServedModel, StackHome
from cli.stack.programs import NEEDS, common_environment, programs, with_needs
from cli.stack.supervisor import configuration


def test_a_service_brings_what_it_needs_in_starting_order() -> None:
    assert with_needs(["author"]) == ["postgres", "verifier", "author"]
    assert with_needs(["trainer"]) == list(NEEDS)
    with pytest.raises(ValueError, match="no service autor"):
        with_needs(["autor"])


def test_the_engine_waits_for_a_model(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    state = home.prepare()
    assert set(programs(home, state)) == {"postgres", "ray", "verifier", "author"}
    model = ServedModel(path="/models/m", served_name="m")
    assert set(programs(home, state.model_copy(update={"model": model}))) == set(NEEDS)


def test_a_part_runs_where_its_place_says_and_is_called_there(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    enter = ["nsenter", "--net=/run/netns/verifier"]
    places = {"verifier": Place(address="10.0.0.2", enter=enter), "postgres": Place(address="10.0.0.3")}
    state = home.prepare().model_copy(update={"places": places})
    home.save(state)
    assert home.prepare() == state
    found = programs(home, state)
    assert found["verifier"].argv[:2] == enter
    assert found["verifier"].environment["SQLCLIMB_HOST"] == "10.0.0.2"
    assert found["author"].environment["SQLCLIMB_HOST"] == "127.0.0.1"
    told = common_environment(home, state)
    assert told["SQLCLIMB_VERIFIER_URL"] == f"http://10.0.0.2:{state.ports['verifier']}"
    assert f"@10.0.0.3:{state.ports['postgres']}/" in told["SQLCLIMB_DB"]


def test_no_secret_is_in_an_argv_or_in_the_supervisor_file(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    state = home.prepare().model_copy(update={"model": ServedModel(path="/models/m", served_name="m")})
    secrets = [state.database_password, home.token_file.read_text(), home.ray_token_file.read_text()]
    written = str(
        {
            section: dict(values)
            for section, values in configuration(home, tmp_path, programs(home, state).values()).items()
        }
    )
    assert not [secret for secret in secrets if secret in written]
    assert state.database_password in common_environment(home, state)["SQLCLIMB_DB"]


def test_state_and_tokens_are_private_and_kept_over_a_second_preparation(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    first = home.prepare()
    token = home.token_file.read_text()
    assert home.prepare() == first
    assert home.token_file.read_text() == token
    for path in (home.state_file, home.tokens_file, home.token_file, home.ray_token_file):
        assert path.stat().st_mode & 0o077 == 0, path
