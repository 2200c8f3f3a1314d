"""Prints what ann-benchmarks stored of gpugraph, in the checkout that is the current directory."""

import glob
import os
import sys

import h5py
import numpy

LEAST_RECALL = 0.99  # of the best point

for dataset in sys.argv[1:]:
    with h5py.File(os.path.join("data", dataset + ".hdf5")) as f:
        exact = numpy.array(f["distances"])
    best = 0
    for file in sorted(glob.glob(os.path.join("results", dataset, "**", "*.hdf5"), recursive=True)):
        with h5py.File(file) as f:
            if not str(f.attrs["name"]).startswith("Gpugraph("):
                continue
            count = int(f.attrs["count"])
            limit = exact[:, count - 1] + 1e-3
            right = numpy.array(f["distances"])[:, :count] <= limit[:, None]
            recall = right.sum() / (count * len(limit))
            best = max(best, recall)
            print("%s %s%s: recall@%d %.4f, %.0f queries/s, built in %.2f s, %d kB" % (
                dataset, f.attrs["name"], " batch" if f.attrs["batch_mode"] else "", count, recall,
                1 / f.attrs["best_search_time"], f.attrs["build_time"], f.attrs["index_size"]))
    if best < LEAST_RECALL:
        sys.exit("%s: the best recall is %.4f" % (dataset, best))
