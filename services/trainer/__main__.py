"""`python -m services.trainer`: the runs API."""

from services.trainer.app import create_app
from services.trainer.settings import TrainerSettings
from shared.settings import load
from shared.web import serve

if __name__ == "__main__":
    settings = load(TrainerSettings)
    serve(create_app(settings), "trainer", settings)
