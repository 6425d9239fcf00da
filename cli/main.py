"""The `sqlclimb` command."""

import sys

import stamina
import typer

from cli.commands import adapters, domains, policy, rows, serving, tasks, training
from cli.commands.author import author
from cli.commands.demo import demo
from cli.commands.measuring import band, delta, report, void
from cli.commands.sampling import control, sample
from cli.commands.stack import down, status, up
from cli.commands.training import train
from cli.commands.verify import verify
from cli.context import exit_code

app = typer.Typer(
    help="Make a language model measurably better at SQL for your own database.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for function in (up, down, status, author, sample, control, report, void, band, train, delta, verify, demo):
    app.command()(function)
app.command()(serving.serve)
app.command()(serving.promote)
app.add_typer(domains.app, name="domain")
app.add_typer(tasks.app, name="tasks")
app.add_typer(rows.app, name="rows")
app.add_typer(policy.app, name="policy")
app.add_typer(training.app, name="runs")
app.add_typer(adapters.app, name="adapters")


def main() -> None:
    """Run a command; errors that are the user's or the installation's become one sentence and an exit code."""
    stamina.instrumentation.set_on_retry_hooks([])  # commands say what they wait for
    try:
        app()
    except BaseException as error:
        code = exit_code(error)
        if code is None:
            raise
        sys.exit(code)


if __name__ == "__main__":
    main()
