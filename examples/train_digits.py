"""Train a small neural network on handwritten digits, on as many processes as there are.

    python examples/train_digits.py                  # one process
    hocket run -n 4 examples/train_digits.py         # four: each takes a quarter of every batch

Data-parallel training is one line: each process computes the gradient of its part of the batch, `all_reduce` makes of
them the mean over all processes, and everyone takes the same step. The rest is a plain network in NumPy.
"""

import hashlib
import time

import numpy as np
from rich.progress import track
from sklearn.datasets import load_digits

import hocket

EPOCHS, BATCH, RATE = 60, 240, 0.5
SHAPES = (64, 512), (512,), (512, 10), (10,)  # 64 pixels, 512 hidden units, 10 digits: weights and biases


def load():
    """1797 images of 8 x 8 pixels in a fixed random order: 1440 to learn from, the rest to be tested on."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16, digits.target[order]
    return images[:1440], labels[:1440], images[1440:], labels[1440:]


def unpack(flat):
    """The arrays of the network, as views into one flat array: what is communicated is one array, not four."""
    cuts = np.cumsum([np.prod(shape) for shape in SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), SHAPES, strict=False)]


def forward(weights, images):
    w1, b1, w2, b2 = unpack(weights)
    hidden = np.maximum(images @ w1 + b1, 0)
    return hidden, hidden @ w2 + b2


def gradient(weights, images, labels):
    """The gradient of the mean cross-entropy, flat like the weights."""
    hidden, scores = forward(weights, images)
    error = np.exp(scores - scores.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ unpack(weights)[2].T) * (hidden > 0)
    return np.concatenate([g.ravel() for g in (images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))])


def train(images, labels, group, epochs):
    """The trained weights, and the seconds spent in all_reduce. All ranks begin with the same weights and batches."""
    random = np.random.default_rng(1)
    weights = random.normal(0, 0.1, sum(np.prod(shape) for shape in SHAPES))
    seconds = 0.0
    for _ in epochs:
        for batch in random.permutation(len(labels)).reshape(-1, BATCH):
            mine = batch.reshape(group.size, -1)[group.rank] if group else batch
            grads = gradient(weights, images[mine], labels[mine])
            if group:
                start = time.perf_counter()
                group.all_reduce(grads, op="mean", out=grads)
                seconds += time.perf_counter() - start
            weights -= RATE * grads
    return weights, seconds


def main():
    images, labels, test_images, test_labels = load()
    with hocket.init() as group:
        epochs = range(EPOCHS)
        if group.rank == 0:
            epochs = track(epochs, f"training, ranks: {group.size}")
        start = time.perf_counter()
        weights, communicating = train(images, labels, group, epochs)
        share = communicating / (time.perf_counter() - start)

        digest = hashlib.blake2b(weights.tobytes(), digest_size=8).digest()
        digests = group.all_gather(np.frombuffer(digest, np.uint8).reshape(1, -1))
        if group.rank == 0:
            alone, _ = train(images, labels, None, range(EPOCHS))
            accuracy = np.mean(forward(weights, test_images)[1].argmax(axis=1) == test_labels)
            same = "bit-identical" if len(np.unique(digests, axis=0)) == 1 else "DIFFERENT"
            print(f"test accuracy               {accuracy:.1%} of {len(test_labels)} images not seen before")
            print(f"weights of all ranks        {same}: blake2 {digest.hex()} on {len(digests)} of {group.size}")
            print(f"against a single process    no weight differs by more than {np.abs(weights - alone).max():.1e}")
            print(f"spent communicating         {share:.0%} of the time, waiting for slower ranks included")


if __name__ == "__main__":
    main()
