"""A photograph in few colours: k-means on its 273,280 pixels, drawn before and after.

    python examples/image_quantization.py [FOLDER]

The picture goes to ``image_quantization.png`` in FOLDER, by default ``examples/output``.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_image

import accelsk
from accelsk.cluster import KMeans


def quantised(image: np.ndarray, n_colours: int) -> np.ndarray:
    """Return `image` with every pixel in the nearest of `n_colours` colours found by k-means."""
    pixels = image.reshape(-1, 3)
    model = KMeans(n_clusters=n_colours, random_state=0).fit(pixels)
    colours = model.cluster_centers_.clip(0, 1)
    return colours[model.predict(pixels)].reshape(image.shape)


def sorted_pixels(image: np.ndarray, height: int) -> np.ndarray:
    """Return a strip as wide as `image`, dark to bright, each colour as wide as its share."""
    pixels = image.reshape(-1, 3)
    order = np.argsort(pixels @ (0.299, 0.587, 0.114), kind="stable")  # luma, ITU-R BT.601
    chosen = order[np.linspace(0, len(order) - 1, image.shape[1]).astype(int)]
    return np.repeat(pixels[chosen][None], height, axis=0)


def draw(images: list[np.ndarray], path: Path) -> None:
    """Write the original and its versions side by side, each over its colours."""
    strip_height = images[0].shape[0] // 12
    figure = Figure(figsize=(5.2 * len(images), 4.2), layout="constrained", facecolor="white")
    grid = figure.subplots(2, len(images), height_ratios=(12, 1))
    for axes in grid.flat:
        axes.axis("off")
    for (picture, strip), image in zip(grid.T, images, strict=True):
        n_colours = len(np.unique(image.reshape(-1, 3), axis=0))
        before = "original: " if image is images[0] else ""
        picture.set_title(f"{before}{n_colours:,} colours", fontsize=15)
        picture.imshow(image)
        strip.imshow(sorted_pixels(image, strip_height))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main(folder: Path) -> None:
    image = load_sample_image("china.jpg") / 255
    print(f"{image[..., 0].size:,} pixels; a GPU is used: {accelsk.enabled()}\n")
    with accelsk.profile():
        versions = {n_colours: quantised(image, n_colours) for n_colours in (64, 12)}
    print()
    for n_colours, version in versions.items():
        error = np.sqrt(np.mean((version - image) ** 2)) * 255
        print(f"{n_colours:2} colours: {error:.1f} of 255 off the original (root mean square)")
    path = folder / "image_quantization.png"
    draw([image, *versions.values()], path)
    print(f"Before and after: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "output")
