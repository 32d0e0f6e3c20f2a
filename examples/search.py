"""A grid search drawn as a map: accuracy of a support vector machine over C and gamma.

    python examples/search.py [FOLDER]

The picture goes to ``search.png`` in FOLDER, by default ``examples/output``.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import accelsk
from accelsk.decomposition import PCA
from accelsk.model_selection import GridSearchCV, train_test_split
from accelsk.pipeline import Pipeline
from accelsk.preprocessing import StandardScaler
from accelsk.svm import SVC

GRID = {"svc__C": np.logspace(-1, 3, 5), "svc__gamma": np.logspace(-4, -1, 5)}


def draw(search: GridSearchCV, path: Path) -> None:
    """Write a map of the mean accuracy, the best candidate marked."""
    Cs, gammas = GRID.values()
    accuracy = search.cv_results_["mean_test_score"].reshape(len(Cs), len(gammas))
    figure = Figure(figsize=(7.5, 5), layout="constrained", facecolor="white")
    ax = figure.subplots()
    image = ax.imshow(accuracy, vmin=0.8, vmax=1, cmap="viridis", aspect="auto")
    for (i, j), value in np.ndenumerate(accuracy):
        colour = "black" if value > 0.92 else "white"
        ax.text(j, i, f"{value:.3f}", ha="center", va="center", color=colour, fontsize=9)
    best = np.unravel_index(search.best_index_, accuracy.shape)
    ax.plot(*best[::-1], "s", markersize=58, fillstyle="none", color="red")
    ax.set_xticks(range(len(gammas)), [f"{gamma:.1g}" for gamma in gammas])
    ax.set_yticks(range(len(Cs)), [f"{C:g}" for C in Cs])
    ax.set_xlabel("gamma")
    ax.set_ylabel("C")
    figure.colorbar(image, label="accuracy, 5 folds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def main(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    pipeline = Pipeline([("scale", StandardScaler()), ("pca", PCA(32)), ("svc", SVC())])
    search = GridSearchCV(pipeline, GRID, cv=5)
    n_fits = 5 * len(GRID["svc__C"]) * len(GRID["svc__gamma"])
    print(f"{n_fits} fits on {len(X) * 4 // 5:,} digits; a GPU is used: {accelsk.enabled()}\n")
    with accelsk.profile():
        search.fit(X, y)
        right = search.score(X_test, y_test)
    best = ", ".join(f"{name[5:]} = {value:.2g}" for name, value in search.best_params_.items())
    print(f"\nBest: {best}; {right:.1%} of the test pictures right")
    path = folder / "search.png"
    draw(search, path)
    print(f"Accuracy over the grid: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "output")
