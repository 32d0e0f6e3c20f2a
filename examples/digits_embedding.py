"""Handwritten digits on a plane: UMAP and t-SNE side by side, with and without the GPU.

    python examples/digits_embedding.py [FOLDER]

The picture goes to ``digits_embedding.png`` in FOLDER, by default ``examples/output``. Where no GPU
is used, it has one row instead of two.
"""

import sys
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

import accelsk
from accelsk.manifold import TSNE
from accelsk.umap import UMAP

N_DIGITS = 600
METHODS = {
    "UMAP": UMAP(n_neighbors=15, min_dist=0.1, random_state=0),
    "t-SNE": TSNE(perplexity=30, random_state=0),
}

Placed = tuple[np.ndarray, float]


def embedded(X: np.ndarray) -> dict[str, Placed]:
    """Return the place of each row on a plane by method, and the seconds that it took."""
    placed = {}
    for name, model in METHODS.items():
        start = perf_counter()
        Y = model.fit_transform(X)
        placed[name] = Y, perf_counter() - start
    return placed


def draw(rows: dict[str, dict[str, Placed]], X: np.ndarray, y: np.ndarray, path: Path) -> None:
    """Write a picture with a row for each device and a column for each method."""
    figure = Figure(figsize=(12, 5.6 * len(rows)), layout="constrained", facecolor="white")
    grid = figure.subplots(len(rows), len(METHODS), squeeze=False)
    for axes, (device, placed) in zip(grid, rows.items(), strict=True):
        for ax, (name, (Y, seconds)) in zip(axes, placed.items(), strict=True):
            ax.scatter(*Y.T, c=y, cmap="tab10", s=6)
            for digit in range(10):
                middle = np.median(Y[y == digit], axis=0)
                ax.annotate(str(digit), middle, fontsize=16, weight="bold", ha="center")
            kept = trustworthiness(X, Y)
            ax.set_title(f"{name} on the {device}: {seconds:.2f} s, trustworthiness {kept:.3f}")
            ax.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def main(folder: Path) -> None:
    warnings.filterwarnings("ignore", message="n_jobs value")  # umap-learn, of a random_state
    X, y = (array[:N_DIGITS] for array in load_digits(return_X_y=True))
    print(f"{len(X):,} digits of {X.shape[1]} pixels; a GPU is used: {accelsk.enabled()}\n")
    rows = {}
    with accelsk.profile():
        if accelsk.enabled():
            embedded(X)  # the first calls compile
            rows["GPU"] = embedded(X)
        with accelsk.config_context(device="cpu"):
            rows["CPU"] = embedded(X)
    print()
    for device, placed in rows.items():
        for name, (_, seconds) in placed.items():
            print(f"{name} on the {device}: {seconds:.2f} s")
    path = folder / "digits_embedding.png"
    draw(rows, X, y, path)
    print(f"Ten digits on a plane: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "output")
