"""Digits: scaling, PCA, clusters and three classifiers, then a report of what ran where.

Every estimator comes from accelsk; take ``accelsk`` for ``sklearn`` in an import line and
nothing else changes. With a usable GPU the calls run there, without one in scikit-learn.

    python examples/quickstart.py
"""

from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import accelsk
from accelsk.cluster import KMeans
from accelsk.decomposition import PCA
from accelsk.ensemble import RandomForestClassifier
from accelsk.linear_model import LogisticRegression
from accelsk.neighbors import KNeighborsClassifier
from accelsk.preprocessing import MinMaxScaler


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    n, n_pixels = X.shape
    print(f"{n} pictures of digits, {n_pixels} pixels each; a GPU is used: {accelsk.enabled()}\n")

    reduce = make_pipeline(MinMaxScaler(), PCA(n_components=0.9))
    reduced_train = reduce.fit_transform(X_train)
    reduced_test = reduce.transform(X_test)
    print(f"{reduced_train.shape[1]} of {n_pixels} components hold 90% of the variance")

    clusters = KMeans(n_clusters=10, n_init=4, random_state=0).fit_predict(reduced_train)
    agreement = adjusted_rand_score(y_train, clusters)
    print(f"10 clusters found without labels: adjusted Rand index {agreement:.2f}\n")

    classifiers = {
        "logistic regression": LogisticRegression(max_iter=1000),
        "random forest": RandomForestClassifier(random_state=0),
        "5 nearest neighbours": KNeighborsClassifier(),
        # cuML grows trees in another order, on which this limit bears: the report says so
        "forest of small trees": RandomForestClassifier(max_leaf_nodes=50, random_state=0),
    }
    for name, classifier in classifiers.items():
        accuracy = classifier.fit(reduced_train, y_train).score(reduced_test, y_test)
        print(f"{name:<21} {accuracy:.1%} of the test pictures right")
    print()


if __name__ == "__main__":
    with accelsk.profile():
        main()
