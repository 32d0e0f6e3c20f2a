"""What three packages write about: TF-IDF of docstrings, latent topics, clusters.

    python examples/text.py [FOLDER]

The documents are the docstrings of the public classes and functions of scikit-learn, NumPy and
SciPy, which are installed with them. The picture goes to ``text.png`` in FOLDER, by default
``examples/output``.
"""

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.feature_extraction.text import TfidfVectorizer

import accelsk
from accelsk.cluster import KMeans
from accelsk.decomposition import TruncatedSVD
from accelsk.pipeline import make_pipeline
from accelsk.preprocessing import Normalizer

MODULES = {
    "numpy": ["", "fft", "linalg", "ma", "polynomial", "random"],
    "scipy": [
        "cluster.hierarchy", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize",
        "signal", "sparse", "sparse.linalg", "spatial", "special", "stats",
    ],
    "sklearn": [
        "cluster", "covariance", "datasets", "decomposition", "ensemble", "feature_selection",
        "gaussian_process", "linear_model", "manifold", "metrics", "model_selection", "neighbors",
        "preprocessing", "svm", "tree",
    ],
}  # fmt: skip
N_TOPICS, N_CLUSTERS = 60, 12


def documents() -> tuple[list[str], list[str]]:
    """Return the docstrings, and the package that each is from."""
    found = {}
    for package, names in MODULES.items():
        for name in names:
            module = importlib.import_module(".".join(filter(None, (package, name))))
            for public in getattr(module, "__all__", dir(module)):
                text = getattr(vars(module).get(public), "__doc__", None)
                if isinstance(text, str) and len(text) > 200 and not public.startswith("_"):
                    found.setdefault(text, package)
    return list(found), list(found.values())


def words_of(clusters: np.ndarray, tfidf: object, vocabulary: np.ndarray) -> list[list[str]]:
    """Return the four words that set each cluster apart from all documents."""
    overall = np.asarray(tfidf.mean(axis=0)).ravel()
    words = []
    for cluster in range(N_CLUSTERS):
        inside = np.asarray(tfidf[clusters == cluster].mean(axis=0)).ravel()
        words.append(list(vocabulary[np.argsort(overall - inside)[:4]]))
    return words


def draw(counts: np.ndarray, words: list[list[str]], packages: list[str], path: Path) -> None:
    """Write a bar for each cluster: how many documents of each package, and its words."""
    figure = Figure(figsize=(10, 5.2), layout="constrained", facecolor="white")
    ax = figure.subplots()
    left = np.zeros(len(counts))
    for package, column in zip(packages, counts.T, strict=True):
        ax.barh([", ".join(w) for w in words], column, left=left, label=package)
        left += column
    ax.set_xlabel("documents")
    ax.invert_yaxis()
    ax.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def main(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are on their way out
        texts, origin = documents()
    vectorizer = TfidfVectorizer(
        stop_words="english", sublinear_tf=True, min_df=5, max_df=0.3, token_pattern=r"[a-z]{3,}"
    )
    tfidf = vectorizer.fit_transform(texts).astype(np.float32)
    n_texts, n_words = tfidf.shape
    print(f"{n_texts:,} docstrings, {n_words:,} words; a GPU is used: {accelsk.enabled()}\n")
    model = make_pipeline(
        TruncatedSVD(N_TOPICS, random_state=0),
        Normalizer(),
        KMeans(N_CLUSTERS, n_init=4, random_state=0),
    )
    with accelsk.profile():
        clusters = model.fit_predict(tfidf)
    packages = list(MODULES)
    of_package = np.array([packages.index(name) for name in origin])
    counts = np.zeros((N_CLUSTERS, len(packages)), int)
    np.add.at(counts, (clusters, of_package), 1)
    words = words_of(clusters, tfidf, vectorizer.get_feature_names_out())
    order = np.argsort(-counts.sum(axis=1))
    print()
    for cluster in order:
        print(f"{counts[cluster].sum():5} documents: {', '.join(words[cluster])}")
    path = folder / "text.png"
    draw(counts[order], [words[cluster] for cluster in order], packages, path)
    print(f"Clusters by package: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "output")
